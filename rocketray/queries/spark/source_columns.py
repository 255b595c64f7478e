"""The columns of the Spark source, and which of them a query requests.

There are two sets of columns. The names of ours are rocketmq-spark's; ``columns=kafka`` has those
of Spark's Kafka source, for queries that were written for it. Spark 4.3 does not tell a Python
source which columns a query uses, so ``.schema(...)`` is the projection: it names the columns to
read, in any order. Without it all are read but those that few queries need.

Spark accepts a batch only if its Arrow schema is the one that Spark computes, so ours is computed
by the same function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketray.base.meant import meant
from rocketray.errors import ConfigError

ColumnSetName = Literal["rocketray", "kafka"]
Shape = Literal["as it is", "bytes", "headers", "log append time"]
_LOG_APPEND_TIME = 1  # of Kafka's two types of a timestamp, the one that the store gives


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column: its type, the column of the store that it is made of, and how."""

    kind: DataType
    stored: str
    shape: Shape = "as it is"
    is_default: bool = True


_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMN_SETS: Mapping[ColumnSetName, Mapping[str, SourceColumn]] = {
    "rocketray": {
        "topic": SourceColumn(StringType(), "topic"),
        "queueId": SourceColumn(IntegerType(), "queueId"),
        "queueOffset": SourceColumn(LongType(), "queueOffset"),
        "body": SourceColumn(BinaryType(), "body"),
        "tags": SourceColumn(StringType(), "tags"),
        "keys": SourceColumn(StringType(), "keys"),
        "properties": SourceColumn(MapType(StringType(), StringType()), "properties"),
        "bornTimestamp": SourceColumn(TimestampType(), "bornTimestamp"),
        "storeTimestamp": SourceColumn(TimestampType(), "storeTimestamp"),
        "msgId": SourceColumn(StringType(), "msgId", is_default=False),
        "shardingKey": SourceColumn(StringType(), "shardingKey", is_default=False),
    },
    "kafka": {
        "key": SourceColumn(BinaryType(), "shardingKey", "bytes"),
        "value": SourceColumn(BinaryType(), "body"),
        "topic": SourceColumn(StringType(), "topic"),
        "partition": SourceColumn(IntegerType(), "queueId"),
        "offset": SourceColumn(LongType(), "queueOffset"),
        "timestamp": SourceColumn(TimestampType(), "storeTimestamp"),
        "timestampType": SourceColumn(IntegerType(), "queueId", "log append time"),
        "headers": SourceColumn(ArrayType(_HEADER), "properties", "headers", is_default=False),
    },
}


def default_schema(name: ColumnSetName, more: Sequence[str] = ()) -> StructType:
    """Return the columns that are read without a schema, and *more* of the same set."""
    return StructType(
        [
            StructField(column, each.kind)
            for column, each in COLUMN_SETS[name].items()
            if each.is_default or column in more
        ]
    )


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns of a query; picklable.

    ``schema`` is the Arrow schema with which Spark will compare ours. ``stored`` are the columns of
    the store to read.
    """

    columns: tuple[SourceColumn, ...]
    stored: tuple[str, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, schema: StructType, name: ColumnSetName) -> Projection:
        """Return the columns that *schema* names.

        Raises:
            ConfigError: a column that the source does not have, or has with another type.
        """
        known = COLUMN_SETS[name]
        if not schema.fields:
            raise ConfigError(f"the schema names no column; the source has {', '.join(known)}")
        columns = tuple(_checked(field, known) for field in schema.fields)
        stored = tuple(dict.fromkeys(column.stored for column in columns))
        return cls(columns, stored, cast("pa.Schema", to_arrow_schema(schema, timezone="UTC")))

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the stored columns as Spark expects it."""
        arrays = [
            _shaped(batch.column(self.stored.index(column.stored)), column.shape, field.type)
            for column, field in zip(self.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _checked(field: StructField, known: Mapping[str, SourceColumn]) -> SourceColumn:
    column = known.get(field.name)
    if column is None:
        near = meant(field.name, known, cutoff=0.5)
        others = [name for name, columns in COLUMN_SETS.items() if field.name in columns]
        hint = f"columns={others[0]} has it. " if others else ""
        if near and not others:
            hint = f"did you mean {near[0]!r}? "
        raise ConfigError(
            f"the source has no column {field.name!r}; {hint}It has {', '.join(known)}"
        )
    if field.dataType != column.kind:
        raise ConfigError(
            f"column {field.name!r} is {column.kind.simpleString()}, not "
            f"{field.dataType.simpleString()}; read it as it is and cast it in the query"
        )
    return column


def _shaped(array: Any, shape: Shape, kind: pa.DataType) -> Any:
    match shape:
        case "bytes":
            return array.cast(kind)
        case "log append time":
            return pa.repeat(pa.scalar(_LOG_APPEND_TIME, kind), len(array))
        case "headers":
            pairs = [array.keys, array.items.cast(pa.binary())]
            entries = pa.StructArray.from_arrays(pairs, fields=list(kind.value_type))
            return pa.ListArray.from_arrays(array.offsets, entries, type=kind)
        case _:
            return array
