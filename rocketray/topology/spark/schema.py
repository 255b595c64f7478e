"""The columns of the Spark source, and which of them a query requests.

The names are rocketmq-spark's. Spark 4.3 does not tell a Python source which columns a query uses,
so ``.schema(...)`` is the projection: it names the columns to read, in any order. Without it all
but ``msgId`` are read.

Spark accepts a batch only if its Arrow schema is the one that Spark computes, so ours is computed
by the same function.
"""

from __future__ import annotations

from typing import cast

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
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

from rocketray.errors import ConfigError
from rocketray.meant import meant

__all__ = ["COLUMN_TYPES", "SOURCE_SCHEMA", "arrow_schema", "check_schema"]

COLUMN_TYPES: dict[str, DataType] = {
    "topic": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "body": BinaryType(),
    "tags": StringType(),
    "keys": StringType(),
    "properties": MapType(StringType(), StringType()),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
    "msgId": StringType(),
}
_ON_REQUEST = frozenset({"msgId"})

SOURCE_SCHEMA = StructType(
    [StructField(name, kind) for name, kind in COLUMN_TYPES.items() if name not in _ON_REQUEST]
)


def check_schema(schema: StructType) -> list[str]:
    """Return the names of the columns in *schema*.

    Raises:
        ConfigError: a column that the source does not have, or has with another type.
    """
    if not schema.fields:
        raise ConfigError(f"the schema names no column; the source has {', '.join(COLUMN_TYPES)}")
    for field in schema.fields:
        expected = COLUMN_TYPES.get(field.name)
        if expected is None:
            near = meant(field.name, COLUMN_TYPES, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(
                f"the source has no column {field.name!r}; {hint}It has {', '.join(COLUMN_TYPES)}"
            )
        if field.dataType != expected:
            raise ConfigError(
                f"column {field.name!r} is {expected.simpleString()}, not "
                f"{field.dataType.simpleString()}; read it as it is and cast it in the query"
            )
    return list(schema.fieldNames())


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema with which Spark will compare ours."""
    return cast("pa.Schema", to_arrow_schema(schema, timezone="UTC"))
