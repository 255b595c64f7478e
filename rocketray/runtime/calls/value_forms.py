"""Values of calls as JSON, in the form that their declared types say.

Both sides know the types, from the interface of the call, so no name of a class is sent: what is
read is built of the declared classes alone, within their limits (base/limits.py), and anything else
is refused.

    None, bool, int, float, str     themselves
    bytes, memoryview               themselves; call_text.py says how they are sent
    an enumeration, a literal       its value
    a path                          its text
    a range                         [start, stop]
    list, tuple, set                an array
    mapping                         an array of pairs
    dataclass, named tuple          an array of its fields
    an error                        an array (sent_errors.py)
    typed dictionary                an object
    a type or None                  null, or its value
    another union                   null, or [the number of the type in the union, its value]
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, Union, get_args, get_origin

from rocketray.base.limits import Limit
from rocketray.errors import ConfigError, StreamError

from .sent_errors import error_from_json, error_to_json

_COLLECTIONS: Mapping[Any, Callable[[Any], Any]] = {
    list: list,
    Sequence: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}


class ValueForm(NamedTuple):
    """How a value of one type is written, and read; both raise ``ValueError`` for another one.

    A value of exactly the type ``kind``, if one is given, is its own form, within ``limit``. So all
    of a collection are checked at once: one by one they would take most of the time of a call.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    kind: type | None = None
    limit: Limit | None = None

    def are_plain(self, values: Collection[Any]) -> bool:
        """Return whether all are forms of their own."""
        if self.kind is None or not {*map(type, values)} <= {self.kind}:
            return False
        limit = self.limit
        return not (limit and values) or limit.least <= min(values) <= max(values) <= limit.most


class CallForm:
    """The arguments of a method of an interface, and its result."""

    def __init__(self, method: Callable[..., Any]) -> None:
        """Raise ``TypeError`` if one of the types has no form."""
        hints = typing.get_type_hints(method, include_extras=True)
        self._name = method.__name__
        self._signature = inspect.signature(method)
        self._places: dict[str, ValueForm] = {}
        self._rest: ValueForm | None = None
        self._options: dict[str, ValueForm] = {}
        # From 1 on: an interface declares methods, and no caller sends ``self``.
        for name, parameter in [*self._signature.parameters.items()][1:]:
            if parameter.kind is parameter.VAR_KEYWORD:
                [named] = get_args(hints[name])  # Unpack[…]
                self._options |= _forms_of(named)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                self._options[name] = form_of(hints[name])
            elif parameter.kind is parameter.VAR_POSITIONAL:
                self._rest = form_of(hints[name])
            else:
                self._places[name] = form_of(hints[name])
        self.result = form_of(hints["return"])

    def write(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of a call; raise ``TypeError`` if the method does not take them."""
        if options or self._options or len(arguments) != len(self._places):
            bound = self._signature.bind(None, *arguments, **options)
            bound.apply_defaults()
            arguments, options = bound.args[1:], bound.kwargs
        given = zip(arguments, self._forms(len(arguments)), strict=True)
        places = [form.write(value) for value, form in given]
        return [places, {name: self._options[name].write(options[name]) for name in options}]

    def read(self, sent: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return what :meth:`write` wrote.

        Raises:
            ConfigError: it is anything else, or outside of its limits.
            StreamError: as the check of a value says.
        """
        try:
            places, options = _several(sent, 2)
            forms = self._forms(len(places) if isinstance(places, list) else 0)
            values = zip(forms, _several(places, len(forms)), strict=True)
            return [form.read(value) for form, value in values], _read_named(self._options, options)
        except StreamError:
            raise
        except ValueError as error:
            raise ConfigError(f"the arguments of {self._name} are invalid: {error}") from None

    def _forms(self, count: int) -> list[ValueForm]:
        """Return the forms of *count* arguments, or of as many as the method takes at least."""
        forms = [*self._places.values()]
        return forms if self._rest is None else forms + [self._rest] * (count - len(forms))


@cache  # get_type_hints evaluates every annotation of the method: once is enough
def call_form(method: Callable[..., Any]) -> CallForm:
    return CallForm(method)


@cache
def form_of(hint: Any) -> ValueForm:
    """Return the form of the values of a type; raise ``TypeError`` if it has none."""
    if isinstance(hint, NewType):
        return form_of(hint.__supertype__)
    if get_origin(hint) is not None:
        return _generic(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if not isinstance(hint, type):
        raise TypeError(f"values of {hint} have no form")
    return _of_class(hint)


def _of_class(kind: type) -> ValueForm:
    if issubclass(kind, Enum):
        return ValueForm(lambda value: _is_a(kind, value).value, kind)
    if issubclass(kind, Path):
        return ValueForm(lambda value: str(_is_a(Path, value)), lambda sent: kind(_is_a(str, sent)))
    if typing.is_typeddict(kind):
        named = _forms_of(kind)
        return ValueForm(partial(_write_named, named), partial(_read_named, named))
    if issubclass(kind, StreamError | OSError):
        return ValueForm(
            lambda value: error_to_json(_is_a(kind, value)),
            lambda sent: _is_a(kind, error_from_json(sent)),
        )
    names, hints = _fields_of(kind), typing.get_type_hints(kind, include_extras=True)
    forms = [form_of(hints[name]) for name in names]
    get = _getter(names)
    kinds = [form.kind for form in forms if form.kind is not None and form.limit is None]
    write = partial(_write_fields, kind, get, [form.write for form in forms])
    read = partial(_read_fields, kind, [form.read for form in forms])
    if len(kinds) == len(forms):
        write = partial(_write_plain, kind, get, kinds, write)
        read = partial(_read_plain, kind, kinds, read)
    return ValueForm(write, read)


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what returns the attributes of those names; of one, attrgetter returns no tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _fields_of(kind: type) -> list[str]:
    """Return the fields that the constructor of a dataclass or a named tuple takes."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if field.init]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return list(kind._fields)
    raise TypeError(f"values of {kind.__name__} have no form")


def _forms_of(kind: type) -> dict[str, ValueForm]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: form_of(hint) for name, hint in hints.items()}


def _generic(hint: Any) -> ValueForm:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _limited(form_of(arguments[0]), arguments[1:])
    if origin is Literal:
        return ValueForm(partial(_one_of, arguments), partial(_one_of, arguments))
    if origin in (Union, types.UnionType):
        return _union([None if each is type(None) else form_of(each) for each in arguments])
    if origin is tuple and arguments[1:] != (...,):
        writes, reads = zip(*(form_of(each)[:2] for each in arguments), strict=True)
        return ValueForm(partial(_write_each, writes), partial(_read_each, reads))
    if origin in _COLLECTIONS:
        one, make = form_of(arguments[0]), _COLLECTIONS[origin]
        return ValueForm(partial(_write_all, one), partial(_read_all, one, make))
    if origin in (dict, Mapping):
        key, value = map(form_of, arguments)
        return ValueForm(partial(_write_mapping, key, value), partial(_read_mapping, key, value))
    raise TypeError(f"values of {hint} have no form")


def _union(forms: Sequence[ValueForm | None]) -> ValueForm:
    found = ValueForm(partial(_write_union, forms), partial(_read_union, forms))
    some = [form for form in forms if form is not None]
    if len(some) == 1:
        [found] = some
    if len(some) == len(forms):
        return found
    return ValueForm(partial(_if_any, found.write), partial(_if_any, found.read))


def _limited(form: ValueForm, limits: Sequence[Any]) -> ValueForm:
    """Return a form whose values are read within limits; see base/limits.py."""
    for limit in limits:
        if not isinstance(limit, Limit):
            if not callable(limit):
                raise TypeError(f"{limit} is no limit of values")
            form = ValueForm(form.write, partial(_read_checked, form.read, limit))
        elif form.kind is int:
            form = ValueForm(form.write, partial(_read_whole, limit), int, limit)
        else:
            form = ValueForm(form.write, partial(_read_limited, form.read, limit))
    return form


def _read_whole(limit: Limit, sent: Any) -> Any:
    if type(sent) is not int or not limit.least <= sent <= limit.most:
        raise ValueError(f"{sent!r:.60} is no number from {limit.least} to {limit.most}")
    return sent


def _read_limited(read: Callable[[Any], Any], limit: Limit, sent: Any) -> Any:
    # The length first: of too many values none is read.
    size = len(sent) if isinstance(sent, list | str) else _number(sent)
    if not limit.least <= size <= limit.most:  # of NaN, neither is true
        what = "as long as" if isinstance(sent, list | str) else "a number"
        raise ValueError(f"{sent!r:.60} is not {what} {limit.least} to {limit.most}")
    return read(sent)


def _read_checked(read: Callable[[Any], Any], check: Callable[[Any], Any], sent: Any) -> Any:
    return check(read(sent))


def _checked(kind: type) -> ValueForm:
    check = partial(_is_exactly, kind)
    return ValueForm(check, check, kind)


def _is_exactly(kind: type, value: Any) -> Any:
    """Return a value of that type; a truth value is no number."""
    if type(value) is not kind:
        raise ValueError(f"{value!r:.60} is not of type {kind.__name__}")
    return value


def _is_a(kind: type, value: Any) -> Any:
    # No TypeError: a caller that reads a form handles one error for all that does not fit.
    if not isinstance(value, kind):
        raise ValueError(f"{value!r:.60} is not of type {kind.__name__}")  # noqa: TRY004 - one error
    return value


def _number(value: Any) -> float:
    # An int is valid where a float is declared, as type checkers have it; True is not.
    if type(value) not in (int, float):
        raise ValueError(f"{value!r:.60} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{value!r:.60} is too large for a float") from None


def _one_of(values: Sequence[Any], value: Any) -> Any:
    if type(value) is str and value in values:  # as nearly always
        return value
    # True == 1 == 1.0: only the type tells the members of such a literal apart.
    for each in values:
        if type(each) is type(value) and each == value:
            return each
    raise ValueError(f"{value!r:.60} is not one of {values}")


def _several(sent: Any, count: int) -> list[Any]:
    values: list[Any] = _is_a(list, sent)
    if len(values) != count:
        raise ValueError(f"{len(values)} values, and not {count}")
    return values


def _read_bytes(sent: Any) -> bytes:
    # In the text, or beside it: see call_text.py.
    return bytes(sent) if isinstance(sent, memoryview) else _from_base64(sent)


def _write_view(value: Any) -> Any:
    return value if isinstance(value, memoryview) else _is_a(bytes, value)


def _read_view(sent: Any) -> memoryview:
    return sent if isinstance(sent, memoryview) else memoryview(_from_base64(sent))


def _from_base64(sent: Any) -> bytes:
    return base64.b64decode(_is_a(str, sent), validate=True)


def _write_range(value: Any) -> list[int]:
    if _is_a(range, value).step != 1:
        raise ValueError(f"{value!r:.60} has steps")
    return [value.start, value.stop]


def _read_range(sent: Any) -> range:
    return range(*(_is_exactly(int, each) for each in _several(sent, 2)))


def _write_fields(
    kind: type,
    get: Callable[[Any], tuple[Any, ...]],
    writes: Sequence[Callable[[Any], Any]],
    value: Any,
) -> list[Any]:
    fields = get(_is_a(kind, value))
    return [write(each) for write, each in zip(writes, fields, strict=True)]


def _read_fields(kind: type, reads: Sequence[Callable[[Any], Any]], sent: Any) -> Any:
    return kind(*_read_each(reads, sent))


def _write_plain(
    kind: type,
    get: Callable[[Any], tuple[Any, ...]],
    kinds: Sequence[type],
    otherwise: Callable[[Any], list[Any]],
    value: Any,
) -> list[Any]:
    """Return the fields of a value whose types are compared at once; see ``ValueForm.kind``."""
    fields = [*get(value)] if type(value) is kind else []
    return fields if [*map(type, fields)] == kinds else otherwise(value)


def _read_plain(
    kind: type, kinds: Sequence[type], otherwise: Callable[[Any], Any], sent: Any
) -> Any:
    is_plain = type(sent) is list and [*map(type, sent)] == kinds
    return kind(*sent) if is_plain else otherwise(sent)


def _write_named(forms: Mapping[str, ValueForm], value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: forms[name].write(each) for name, each in value.items()}


def _read_named(forms: Mapping[str, ValueForm], sent: Any) -> dict[str, Any]:
    if unknown := _is_a(dict, sent).keys() - forms.keys():
        raise ValueError(f"no value is named {sorted(unknown)}")
    return {name: forms[name].read(each) for name, each in sent.items()}


def _if_any(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _write_union(forms: Sequence[ValueForm | None], value: Any) -> list[Any]:
    # The number of the type is sent, because two types may look alike as JSON.
    for number, form in enumerate(forms):
        if form is None:
            continue
        try:
            return [number, form.write(value)]
        except ValueError:
            continue
    raise ValueError(f"{value!r:.60} is of no type of the union")


def _read_union(forms: Sequence[ValueForm | None], sent: Any) -> Any:
    number, value = _several(sent, 2)
    form = forms[number] if _is_exactly(int, number) in range(len(forms)) else None
    if form is None:
        raise ValueError(f"the union has no type {number}")
    return form.read(value)


def _write_each(writes: Sequence[Callable[[Any], Any]], value: Any) -> list[Any]:
    if len(_is_a(tuple, value)) != len(writes):
        raise ValueError(f"{value!r:.60} has not {len(writes)} values")
    return [write(each) for write, each in zip(writes, value, strict=True)]


def _read_each(reads: Sequence[Callable[[Any], Any]], sent: Any) -> tuple[Any, ...]:
    values = _several(sent, len(reads))
    return tuple([read(each) for read, each in zip(reads, values, strict=True)])


def _write_all(one: ValueForm, value: Any) -> list[Any]:
    # A text is a collection of texts: without this it would be sent letter by letter.
    if isinstance(value, str | bytes):
        raise ValueError(f"{value!r:.60} is no collection")  # noqa: TRY004 - one error
    if type(value) is not list:  # of these are most, and to ask the ABC takes longer
        _is_a(Collection, value)
    return [*value] if one.are_plain(value) else [*map(one.write, value)]


def _read_all(one: ValueForm, make: Callable[[Any], Any], sent: Any) -> Any:
    return make(sent if one.are_plain(_is_a(list, sent)) else map(one.read, sent))


def _write_mapping(key: ValueForm, value: ValueForm, found: Any) -> list[Any]:
    write_key, write_value = key.write, value.write
    return [[write_key(name), write_value(one)] for name, one in _is_a(Mapping, found).items()]


def _read_mapping(key: ValueForm, value: ValueForm, sent: Any) -> dict[Any, Any]:
    pairs = [_several(pair, 2) for pair in _is_a(list, sent)]
    read_key, read_value = key.read, value.read
    return {read_key(name): read_value(one) for name, one in pairs}


_SIMPLE: Mapping[Any, ValueForm] = {
    None: _checked(type(None)),
    type(None): _checked(type(None)),
    bool: _checked(bool),
    int: _checked(int),
    str: _checked(str),
    float: ValueForm(_number, _number),
    bytes: ValueForm(partial(_is_a, bytes), _read_bytes),
    memoryview: ValueForm(_write_view, _read_view),
    range: ValueForm(_write_range, _read_range),
}
