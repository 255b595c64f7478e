"""Spark's types for the values of a topic: the schema with which ``from_json`` reads their JSON."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Union, get_args, get_origin, get_type_hints

import faust
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketray.errors import ConfigError

_TYPES: tuple[tuple[type, DataType], ...] = (  # a subclass before its base
    (bool, BooleanType()),
    (int, LongType()),
    (float, DoubleType()),
    (str, StringType()),
    (bytes, StringType()),  # Faust writes bytes as text
    (datetime, TimestampType()),
    (date, DateType()),
    (Decimal, DecimalType(38, 18)),  # what Spark itself infers for a Decimal
)


def schema(record_type: type) -> StructType:
    """Return the schema of a Record or a dataclass, with which ``from_json`` reads its JSON.

    Every field may be null, as a message may lack it. An enum has the type of its values.

    Raises:
        ConfigError: it is neither, or a field has a type that no JSON value has.
    """
    fields = _fields_of(record_type)
    if fields is None:
        raise ConfigError(
            f"{record_type!r:.80} is neither a Record nor a dataclass; give the type of a topic's "
            "values"
        )
    return StructType(
        [
            StructField(written, _type_of(kind, f"{record_type.__name__}.{name}"))
            for name, (written, kind) in fields.items()
        ]
    )


def _fields_of(kind: Any) -> dict[str, tuple[str, Any]] | None:
    """Return each field's name in JSON and its type; None if *kind* has no fields."""
    if isinstance(kind, type) and issubclass(kind, faust.Record):
        record: Any = kind
        options = record._options  # noqa: SLF001  # contract-tested
        hints = options.fields
        return {name: (options.descriptors[name].output_name, hints[name]) for name in hints}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return {field.name: (field.name, hints[field.name]) for field in dataclasses.fields(kind)}
    return None


def _type_of(kind: Any, where: str) -> DataType:
    arguments = get_args(kind)
    found = _composed(get_origin(kind), arguments, where) if arguments else _single(kind, where)
    if found is None:
        raise ConfigError(
            f"{where} is {getattr(kind, '__name__', kind)!s:.80}, for which Spark has no type; "
            "read that field with a schema of your own"
        )
    return found


def _composed(origin: Any, arguments: tuple[Any, ...], where: str) -> DataType | None:
    """Return the type of a container, or of a union with None."""
    if origin in (Union, types.UnionType):
        present = {each for each in arguments if each is not types.NoneType}
        return _type_of(present.pop(), where) if len(present) == 1 else None
    if not isinstance(origin, type):
        return None
    if issubclass(origin, Mapping):
        is_text = arguments[0] is str
        return MapType(StringType(), _type_of(arguments[1], where)) if is_text else None
    items = {each for each in arguments if each is not Ellipsis}
    is_array = issubclass(origin, Sequence | AbstractSet) and len(items) == 1
    return ArrayType(_type_of(items.pop(), where)) if is_array else None


def _single(kind: Any, where: str) -> DataType | None:
    if not isinstance(kind, type):
        return None
    if _fields_of(kind) is not None:
        return schema(kind)
    if issubclass(kind, enum.Enum):
        values = {type(each.value) for each in kind}
        return _type_of(values.pop(), where) if len(values) == 1 else None
    return next((spark for python, spark in _TYPES if issubclass(kind, python)), None)
