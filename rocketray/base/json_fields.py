"""Dataclasses as JSON objects, by the names of their fields in JSON's style, and back.

    dataclass           an object: the field ``queue_id`` has the key ``queueId``; one with the
                        metadata ``json`` has that key
    named tuple, tuple  an array; a set is a sorted one
    mapping             an object, whose keys are texts or whole numbers
    X | None            null, or the value
    Subscription        as its ``to_json`` and ``from_json`` say, and so any class that has both
    all else            itself

An object is read by the declared types alone. Keys that no field has are ignored: a release that
adds one raises the version of the file (file_form.py).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

from rocketray.errors import StreamError

from .limits import Limit
from .quantity import counted

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_T = TypeVar("_T")
_KeyOf = Callable[[str], str]
Natural = Annotated[int, Limit((1 << 63) - 1)]
"""A number of a file that is not negative, such as an offset, a size or a time; an i64."""


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def json_fields(value: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a dataclass by their names in JSON's style: ``queueId``."""
    return {
        each.metadata.get("json") or _camel_case(each.name): _plain(getattr(value, each.name))
        for each in fields(value)
    }


def read_value(kind: type[_T], value: object, key_of: _KeyOf = _camel_case) -> _T:
    """Return a value of the type *kind* from its JSON; from ``asdict`` if *key_of* is ``str``.

    Raises:
        ValueError: *value* has another form; it names the field. What a class raises by itself.
    """
    found: _T = _read(kind, value, key_of)
    return found


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return value.to_json() if hasattr(value, "to_json") else json_fields(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | AbstractSet):
        return [*map(_plain, sorted(value) if isinstance(value, AbstractSet) else value)]
    return value


def _read(kind: Any, value: Any, key_of: _KeyOf) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _limited(arguments[0], arguments[1], value)
    if origin in (Union, types.UnionType):
        [only] = [each for each in arguments if each is not type(None)]
        return None if value is None else _read(only, value, key_of)
    if origin in (dict, Mapping):
        of_key, of_value = arguments
        found = _checked(dict, value).items()
        return {_read_key(of_key, name): _read(of_value, each, key_of) for name, each in found}
    if origin in (tuple, frozenset) or hasattr(kind, "_fields"):
        return _read_array(kind, _checked(list, value), key_of)
    return _read_fields(kind, value, key_of) if is_dataclass(kind) else _checked(kind, value)


def _read_key(kind: Any, name: str) -> Any:
    if kind is str:
        return name
    key = int(name)
    if str(key) != name:  # " 1", "01" and "1_0" are numbers for Python
        raise ValueError(f"{name!r:.60} is no number")
    return _read(kind, key, _camel_case)


def _read_fields(kind: Any, value: object, key_of: _KeyOf) -> Any:
    found, hints, given = {}, _hints(kind), _checked(dict, value)
    for each in fields(kind):
        key, hint = each.metadata.get("json") or key_of(each.name), hints[each.name]
        if key not in given:
            raise ValueError(f"it has no {key!r}")
        read = getattr(hint, "from_json", None) or partial(_read, hint, key_of=key_of)
        try:
            found[each.name] = read(given[key])
        except StreamError:
            raise  # it says what is wrong by itself
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return kind(**found)


def _read_array(kind: Any, values: list[Any], key_of: _KeyOf) -> Any:
    origin, kinds = get_origin(kind), get_args(kind) or (*_hints(kind).values(),)
    if origin is frozenset or kinds[1:] == (...,):
        kinds = (kinds[0],) * len(values)
    if len(values) != len(kinds):
        raise ValueError(f"it has {counted(len(values), 'value')}, not {len(kinds):,}")
    found = [_read(one, each, key_of) for one, each in zip(kinds, values, strict=True)]
    return kind(*found) if origin is None else origin(found)


def _limited(kind: type, limit: Limit, value: Any) -> Any:
    if not limit.least <= _checked(kind, value) <= limit.most:
        raise ValueError(f"{value!r:.60} is no number from {limit.least} to {limit.most}")
    return value


def _checked(kind: type, value: Any) -> Any:
    # Not isinstance: true is an int in Python.
    if type(value) is not kind:
        raise ValueError(f"{value!r:.60} is not of type {kind.__name__}")
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)
