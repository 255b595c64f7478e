"""Values of a declared type from their JSON, where Faust leaves what JSON has.

JSON knows objects, arrays, texts and numbers. What a sender had as a set, a tuple, a date or a UUID
is read as its declared type again:

    sets, tuples             always, as in Faust where their members are datetimes or Records
    date, time, UUID, Enum   as Faust does with datetime: with ``coerce=True``, and as the whole
                             value, key or table entry of such a type
    keys of a dict           the same; whole numbers and floats, too, since JSON has only texts

All other types are Faust's, and so is every type for which a Record has a coercion of its own.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from faust.models.typing import NodeType, TypeExpression
from faust.serializers.registry import Registry
from faust.types.models import ModelT

from .iso_times import parse as parse_iso_time

_Reader = Callable[[Any], Any]
_Parse = Callable[[str], Any]

_PARSERS: Mapping[Any, _Parse] = {
    date: date.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
}
_OF_KEYS: Mapping[Any, _Parse] = {**_PARSERS, int: int, float: float, datetime: parse_iso_time}
_FAUSTS_OWN = (int, float, Decimal, str, bytes)  # of whole values
# The parts of a type that Faust's generated function converts; without one of them it copies.
_FAUSTS = {NodeType.DATETIME, NodeType.DECIMAL, NodeType.MODEL, NodeType.USER}


class Serializers(Registry):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's registry, which also makes values, keys and table entries of the types above."""

    def _prepare_payload(self, typ: Any, value: Any) -> Any:
        read = _whole_reader(typ)
        return super()._prepare_payload(typ, value) if read is None else read(value)


def can_be_read(kind: type) -> bool:
    """Return whether Faust or this module makes values of type *kind*."""
    is_fausts = kind in _FAUSTS_OWN or hasattr(kind, "from_data")
    return is_fausts or _whole_reader(kind) is not None


def read_as_declared(field: Any) -> None:
    """Have *field*, Faust's descriptor of a field of a Record, read its value as declared."""
    found = _Readers(
        coerces=bool(field.coerce),
        coercions=field.options["model_coercions"],
        date_parser=field.date_parser,
    )
    read = found.reader(field.type)
    if found.are_ours:
        field._to_python = read  # noqa: SLF001  # contract-tested


# For each type once: Faust generates and compiles source for it.
@lru_cache(maxsize=512)
def _whole_reader(kind: Any) -> _Reader | None:
    """Return the reader of a whole value of type *kind*; None if Faust has one."""
    if kind is None or kind in _FAUSTS_OWN or hasattr(kind, "from_data"):
        return None
    found = _Readers(coerces=True, coercions={}, date_parser=parse_iso_time)
    read = found.reader(kind)
    if read is not None:
        return read
    return _checked(kind) if kind in (bool, dict, list) else None


def _checked(kind: type) -> _Reader:
    """Return a reader of a type that JSON has, which Faust takes for a model."""

    def read(value: Any) -> Any:
        if value is not None and type(value) is not kind:
            raise ValueError(f"{value!r:.60} is not a {kind.__name__}")
        return value

    return read


class _Readers:
    """Makes the readers of one field's type and of its parts."""

    def __init__(self, *, coerces: bool, coercions: Mapping[Any, Any], date_parser: _Parse) -> None:
        self._coerces, self._coercions, self._date_parser = coerces, coercions, date_parser
        self.are_ours = False
        """Whether a part of the type is read here that Faust would leave."""

    def reader(self, kind: Any) -> _Reader | None:
        """Return what makes a value of type *kind* of its JSON; None to leave it."""
        origin, arguments = get_origin(kind) or kind, get_args(kind)
        # ``X | None`` is read as X. Of several types JSON does not tell which one is meant, so
        # Faust's rule stays.
        if origin in (Union, types.UnionType):
            members = [each for each in arguments if each is not types.NoneType]
            return self.reader(members[0]) if len(members) == 1 else None
        if not isinstance(origin, type) or self._is_fausts(origin):
            return self._of_faust(kind)
        if issubclass(origin, AbstractSet | Mapping | Sequence):
            return self._container(origin, arguments)
        return self._single(origin) if self._coerces else self._of_faust(kind)

    def _container(self, origin: type, arguments: tuple[Any, ...]) -> _Reader | None:
        if issubclass(origin, AbstractSet):
            make = frozenset if issubclass(origin, frozenset) else set
            return self._array(make, self._items(arguments))
        if issubclass(origin, tuple):
            return self._tuple(origin, arguments)
        if issubclass(origin, Mapping):
            return self._mapping(arguments)
        items = self._items(arguments)
        return None if items is None else _each(list, items)

    def _is_fausts(self, origin: type) -> bool:
        is_coerced = any(issubclass(origin, each) for each in self._coercions)
        return is_coerced or issubclass(origin, (ModelT, str, bytes))

    def _of_faust(self, kind: Any) -> _Reader | None:
        found = TypeExpression(kind, user_types=self._coercions, date_parser=self._date_parser)
        read: _Reader = found.as_function()
        return read if _FAUSTS & found.type_stats.keys() else None

    def _single(self, kind: type, parsers: Mapping[Any, _Parse] = _PARSERS) -> _Reader | None:
        if issubclass(kind, Enum):
            self.are_ours = True
            return lambda value: None if value is None else kind(value)
        parse = parsers.get(kind)
        if parse is None:
            return self._of_faust(kind)
        self.are_ours = True
        return lambda value: parse(value) if isinstance(value, str) else value

    def _items(self, arguments: tuple[Any, ...]) -> _Reader | None:
        return self.reader(arguments[0]) if arguments else None

    def _array(self, make: Callable[[Iterable[Any]], Any], items: _Reader | None) -> _Reader:
        self.are_ours = True
        return _each(make, items)

    def _tuple(self, kind: Any, arguments: tuple[Any, ...]) -> _Reader:
        """Return the reader of any number of members of one type, or of each by its own type."""
        # A NamedTuple: its members have types of their own, and ``_make`` builds it.
        is_named = hasattr(kind, "_fields")
        if not is_named and (not arguments or Ellipsis in arguments):
            return self._array(tuple, self._items(arguments))
        self.are_ours = True
        members = get_type_hints(kind).values() if is_named else arguments
        readers = [self.reader(member) or _as_it_is for member in members]
        make = kind._make if is_named else tuple

        def read(value: Any) -> Any:
            if not isinstance(value, list):
                return value
            return make(
                read_member(member) for read_member, member in zip(readers, value, strict=True)
            )

        return read

    def _mapping(self, arguments: tuple[Any, ...]) -> _Reader | None:
        if not arguments:
            return None
        key_kind, value_kind = arguments
        is_plain = isinstance(key_kind, type) and self._coerces
        keys = self._single(key_kind, _OF_KEYS) if is_plain else None
        self.are_ours = self.are_ours or (is_plain and key_kind in _OF_KEYS)
        values = self.reader(value_kind)
        if keys is None and values is None:
            return None
        read_key, read_value = keys or _as_it_is, values or _as_it_is

        def read(value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            return {read_key(key): read_value(member) for key, member in value.items()}

        return read


def _each(make: Callable[[Iterable[Any]], Any], items: _Reader | None) -> _Reader:
    """Return the reader of an array that *make* builds; what is no array stays as it is."""

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return make(value) if items is None else make(map(items, value))

    return read


def _as_it_is(value: Any) -> Any:
    return value
