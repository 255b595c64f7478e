"""Values of calls as JSON, in the form that their declared types say.

Both sides know the types, from the interface of the call, so no name of a class is sent: what is
read is built of the declared classes alone, and anything else is refused.

    None, bool, int, float, str     themselves
    bytes                           text, in base64
    an enumeration, a literal       its value
    a path                          its text
    a range                         [start, stop]
    list, tuple, set                an array
    mapping                         an array of pairs
    dataclass, named tuple          an array of its fields
    an error of rocketray           an array (sent_errors.py)
    typed dictionary                an object
    a union                         null, or [the number of the type in the union, its value]
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
from pathlib import Path
from typing import Any, Literal, NamedTuple, NewType, Union, get_args, get_origin

from rocketray.errors import StreamError

from .sent_errors import error_from_json, error_to_json

_COLLECTIONS: Mapping[Any, Callable[[Any], Any]] = {
    list: list,
    Sequence: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}


class ValueForm(NamedTuple):
    """How a value of one type is written, and read; both raise ``ValueError`` for another one."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class CallForm:
    """The arguments of a method of an interface, and its result."""

    def __init__(self, method: Callable[..., Any]) -> None:
        """Raise ``TypeError`` if one of the types has no form."""
        hints = typing.get_type_hints(method)
        self._signature = inspect.signature(method)
        self._places: dict[str, ValueForm] = {}
        self._options: dict[str, ValueForm] = {}
        # From 1 on: an interface declares methods, and no caller sends ``self``.
        for name, parameter in [*self._signature.parameters.items()][1:]:
            if parameter.kind is parameter.VAR_KEYWORD:
                [named] = get_args(hints[name])  # Unpack[…]
                self._options |= _forms_of(named)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                self._options[name] = form_of(hints[name])
            else:
                self._places[name] = form_of(hints[name])
        self.result = form_of(hints["return"])

    def write(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of a call; raise ``TypeError`` if the method does not take them."""
        bound = self._signature.bind(None, *arguments, **options)
        bound.apply_defaults()
        given = zip(bound.args[1:], self._places.values(), strict=True)
        places = [form.write(value) for value, form in given]
        return [
            places,
            {name: self._options[name].write(bound.kwargs[name]) for name in bound.kwargs},
        ]

    def read(self, sent: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return what :meth:`write` wrote; raise ``ValueError`` for anything else."""
        places, options = _several(sent, 2)
        values = zip(self._places.values(), _several(places, len(self._places)), strict=True)
        return [form.read(value) for form, value in values], _read_named(self._options, options)


@cache  # get_type_hints evaluates every annotation of the method: once is enough
def call_form(method: Callable[..., Any]) -> CallForm:
    """Return the form of the calls of a method."""
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
    if issubclass(kind, StreamError):
        return ValueForm(
            lambda value: error_to_json(_is_a(kind, value)),
            lambda sent: _is_a(kind, error_from_json(sent)),
        )
    names, of_fields = _fields_of(kind), _forms_of(kind)
    forms = [of_fields[name] for name in names]
    return ValueForm(partial(_write_fields, kind, names, forms), partial(_read_fields, kind, forms))


def _fields_of(kind: type) -> list[str]:
    """Return the fields that the constructor of a dataclass or a named tuple takes."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if field.init]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return list(kind._fields)
    raise TypeError(f"values of {kind.__name__} have no form")


def _forms_of(kind: type) -> dict[str, ValueForm]:
    return {name: form_of(hint) for name, hint in typing.get_type_hints(kind).items()}


def _generic(hint: Any) -> ValueForm:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return ValueForm(partial(_one_of, arguments), partial(_one_of, arguments))
    if origin in (Union, types.UnionType):
        forms = [None if each is type(None) else form_of(each) for each in arguments]
        return ValueForm(partial(_write_union, forms), partial(_read_union, forms))
    if origin is tuple and arguments[1:] != (...,):
        each_one = [form_of(each) for each in arguments]
        return ValueForm(partial(_write_each, each_one), partial(_read_each, each_one))
    if origin in _COLLECTIONS:
        one, make = form_of(arguments[0]), _COLLECTIONS[origin]
        return ValueForm(partial(_write_all, one), partial(_read_all, one, make))
    if origin in (dict, Mapping):
        pairs = [form_of(each) for each in arguments]
        return ValueForm(partial(_write_mapping, pairs), partial(_read_mapping, pairs))
    raise TypeError(f"values of {hint} have no form")


def _checked(kind: type) -> ValueForm:
    check = partial(_is_exactly, kind)
    return ValueForm(check, check)


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
    return float(value)


def _one_of(values: Sequence[Any], value: Any) -> Any:
    # True == 1 == 1.0: only the type tells the members of such a literal apart.
    for each in values:
        if type(each) is type(value) and each == value:
            return each
    raise ValueError(f"{value!r:.60} is not one of {values}")


def _several(sent: Any, count: int) -> list[Any]:
    if len(_is_a(list, sent)) != count:
        raise ValueError(f"{len(sent)} values, and not {count}")
    return list(sent)


def _write_bytes(value: Any) -> str:
    return base64.b64encode(_is_a(bytes, value)).decode()


def _read_bytes(sent: Any) -> bytes:
    return base64.b64decode(_is_a(str, sent), validate=True)


def _write_range(value: Any) -> list[int]:
    if _is_a(range, value).step != 1:
        raise ValueError(f"{value!r:.60} has steps")
    return [value.start, value.stop]


def _read_range(sent: Any) -> range:
    return range(*(_is_exactly(int, each) for each in _several(sent, 2)))


def _write_fields(
    kind: type, names: Sequence[str], forms: Sequence[ValueForm], value: Any
) -> list[Any]:
    _is_a(kind, value)
    return [form.write(getattr(value, name)) for name, form in zip(names, forms, strict=True)]


def _read_fields(kind: type, forms: Sequence[ValueForm], sent: Any) -> Any:
    return kind(*_read_each(forms, sent))


def _write_named(forms: Mapping[str, ValueForm], value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: forms[name].write(each) for name, each in value.items()}


def _read_named(forms: Mapping[str, ValueForm], sent: Any) -> dict[str, Any]:
    if unknown := _is_a(dict, sent).keys() - forms.keys():
        raise ValueError(f"no value is named {sorted(unknown)}")
    return {name: forms[name].read(each) for name, each in sent.items()}


def _write_union(forms: Sequence[ValueForm | None], value: Any) -> list[Any] | None:
    # The number of the type is sent, because two types may look alike as JSON.
    for number, form in enumerate(forms):
        if form is None:
            if value is None:
                return None
            continue
        try:
            return [number, form.write(value)]
        except ValueError:
            continue
    raise ValueError(f"{value!r:.60} is of no type of the union")


def _read_union(forms: Sequence[ValueForm | None], sent: Any) -> Any:
    if sent is None and None in forms:
        return None
    number, value = _several(sent, 2)
    form = forms[number] if _is_exactly(int, number) in range(len(forms)) else None
    if form is None:
        raise ValueError(f"the union has no type {number}")
    return form.read(value)


def _write_each(forms: Sequence[ValueForm], value: Any) -> list[Any]:
    if len(_is_a(tuple, value)) != len(forms):
        raise ValueError(f"{value!r:.60} has not {len(forms)} values")
    return [form.write(each) for form, each in zip(forms, value, strict=True)]


def _read_each(forms: Sequence[ValueForm], sent: Any) -> tuple[Any, ...]:
    values = _several(sent, len(forms))
    return tuple(form.read(each) for form, each in zip(forms, values, strict=True))


def _write_all(one: ValueForm, value: Any) -> list[Any]:
    # A text is a collection of texts: without this it would be sent letter by letter.
    if isinstance(value, str | bytes):
        raise ValueError(f"{value!r:.60} is no collection")  # noqa: TRY004 - one error
    return [one.write(each) for each in _is_a(Collection, value)]


def _read_all(one: ValueForm, make: Callable[[Any], Any], sent: Any) -> Any:
    return make(one.read(each) for each in _is_a(list, sent))


def _write_mapping(pairs: Sequence[ValueForm], value: Any) -> list[Any]:
    return [_write_each(pairs, pair) for pair in _is_a(Mapping, value).items()]


def _read_mapping(pairs: Sequence[ValueForm], sent: Any) -> dict[Any, Any]:
    return dict(_read_each(pairs, pair) for pair in _is_a(list, sent))


_SIMPLE: Mapping[Any, ValueForm] = {
    None: _checked(type(None)),
    type(None): _checked(type(None)),
    bool: _checked(bool),
    int: _checked(int),
    str: _checked(str),
    float: ValueForm(_number, _number),
    bytes: ValueForm(_write_bytes, _read_bytes),
    range: ValueForm(_write_range, _read_range),
}
