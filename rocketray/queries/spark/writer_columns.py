"""The columns that the Spark writer takes: ours, or those of Spark's Kafka sink.

They are checked where a query is planned, by name and by type. A batch of rows becomes one of the
columns that ``MessageRows`` takes, without a Python object for a row. Rows are often messages that
were read, so what a node noted about these is left out of their properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from rocketray.base.meant import meant
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.store.batches.taken_on import taken_on_column

from .source_columns import ColumnSetName

_KEYS = pa.list_(pa.string())


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: the one of messages that it becomes, its type in words, and as a check."""

    stored: str
    words: str
    fits: Callable[[DataType], bool]


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, BinaryType | StringType)


def _is_number(kind: DataType) -> bool:
    return isinstance(kind, IntegerType | LongType | ShortType | ByteType)


def _is_time(kind: DataType) -> bool:
    return isinstance(kind, TimestampType)


def _is_keys(kind: DataType) -> bool:
    return _is_text(kind.elementType if isinstance(kind, ArrayType) else kind)


def _is_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and _is_text(kind.keyType) and _is_text(kind.valueType)


def _is_headers(kind: DataType) -> bool:
    pair = kind.elementType if isinstance(kind, ArrayType) else None
    return (
        isinstance(pair, StructType)
        and pair.names == ["key", "value"]
        and _is_text(pair["key"].dataType)
        and _is_bytes(pair["value"].dataType)
    )


_SETS: Mapping[ColumnSetName, Mapping[str, _Column]] = {
    "rocketray": {
        "body": _Column("body", "binary or string", _is_bytes),
        "topic": _Column("topic", "string", _is_text),
        "tags": _Column("tags", "string", _is_text),
        "keys": _Column("keys", "string, or array of string", _is_keys),
        "properties": _Column("properties", "map of string to string", _is_map),
        "shardingKey": _Column("shardingKey", "string", _is_text),
        "queueId": _Column("queueId", "int", _is_number),
        "deliverAt": _Column("deliverAt", "timestamp", _is_time),
    },
    "kafka": {
        "value": _Column("body", "binary or string", _is_bytes),
        "key": _Column("shardingKey", "binary or string", _is_bytes),
        "topic": _Column("topic", "string", _is_text),
        "partition": _Column("queueId", "int", _is_number),
        "headers": _Column(
            "properties", "array of struct of key string and value binary", _is_headers
        ),
    },
}


@dataclass(frozen=True, slots=True)
class WriterColumns:
    """The columns of a write, by the names that messages have; picklable."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, schema: StructType, name: ColumnSetName, *, has_topic: bool) -> WriterColumns:
        """Return the columns of rows with that schema; *has_topic* if the option names the topic.

        Raises:
            ConfigError: a column is missing, unknown, or of another type.
        """
        known = _SETS[name]
        for field in schema.fields:
            if field.name not in known:
                raise ConfigError(_unknown(field.name, known))
            if not known[field.name].fits(field.dataType):
                raise ConfigError(
                    f"column {field.name!r} is {field.dataType.simpleString():.200}, and has to be "
                    f"{known[field.name].words}; cast it: .withColumn({field.name!r}, …)"
                )
        there = [field.name for field in schema.fields]
        body = next(name for name, column in known.items() if column.stored == "body")
        if body not in there:
            raise ConfigError(
                f"the column {body!r} is missing, which is the content of the messages; make it, "
                "for example of all columns, with to_json(struct('*'))"
            )
        if "topic" not in there and not has_topic:
            raise ConfigError(
                "it is not said to which topic the rows go; add .option('topic', 'Trade'), or a "
                "column topic"
            )
        return cls(tuple(known[each].stored for each in there))

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of Spark's with the columns of messages.

        Raises:
            InvalidMessageError: a key, or a value of a header, is not UTF-8.
        """
        columns = [
            _shaped(name, column) for name, column in zip(self.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=[*self.names])


def _unknown(name: str, known: Mapping[str, _Column]) -> str:
    near = meant(name, known, cutoff=0.5)
    others = [of for of, columns in _SETS.items() if name in columns]
    if others:
        hint = f"columns={others[0]} has it: .option('columns', {others[0]!r}). "
    else:
        hint = f"did you mean {near[0]!r}? " if near else ""
    takes = f"{'It' if hint else 'it'} takes {', '.join(known)}"
    return f"the writer has no column {name!r}; {hint}{takes}: choose them with .select(…)"


def _shaped(name: str, column: Any) -> Any:
    try:
        if name == "shardingKey":
            return column.cast(pa.string())
        if name == "keys" and pa.types.is_list(column.type):
            return column.cast(_KEYS)  # Spark also says whether an element may be null
        if name == "properties":
            is_map = pa.types.is_map(column.type)
            return taken_on_column(column if is_map else _properties(column))
    except pa.ArrowInvalid as error:
        raise InvalidMessageError(
            f"a {'key' if name == 'shardingKey' else 'header'} is not UTF-8, as what messages carry "
            f"beside the body is text: {error}; encode it, for example with base64(…)"
        ) from None
    return column


def _properties(headers: Any) -> Any:
    """Return lists of keys and values as maps."""
    # Offsets are computed, because ``flatten`` leaves out what is before a slice or below a null.
    sizes = np.array([0, *headers.value_lengths().fill_null(0).to_pylist()], np.int32)
    pairs = headers.flatten()
    values = pairs.field("value").cast(pa.string())
    return pa.MapArray.from_arrays(
        pa.array(np.cumsum(sizes, dtype=np.int32)), pairs.field("key"), values
    )
