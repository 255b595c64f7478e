from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from rocketray.errors import ConfigError
from rocketray.store.reading import columns as store_columns
from rocketray.topology.spark.schema import (
    COLUMN_TYPES,
    SOURCE_SCHEMA,
    arrow_schema,
    check_schema,
)


def schema_of(*names: str) -> StructType:
    return StructType([StructField(name, COLUMN_TYPES[name]) for name in names])


@pytest.mark.parametrize("name", COLUMN_TYPES)
def test_each_column_has_the_type_that_the_store_gives_it(name: str) -> None:
    assert arrow_schema(schema_of(name)).equals(store_columns.column_schema((name,)))


def test_all_columns_but_the_id_are_read_without_a_schema() -> None:
    assert [*SOURCE_SCHEMA.fieldNames(), "msgId"] == list(store_columns.COLUMN_TYPES)


def test_a_schema_chooses_columns_in_any_order() -> None:
    assert check_schema(schema_of("msgId", "body", "topic")) == ["msgId", "body", "topic"]


def test_an_unknown_column_names_the_nearest() -> None:
    schema = StructType([StructField("queueOfset", LongType())])

    with pytest.raises(ConfigError, match="no column 'queueOfset'; did you mean 'queueOffset'"):
        check_schema(schema)


def test_another_type_is_refused() -> None:
    schema = StructType([StructField("body", StringType())])

    with pytest.raises(ConfigError, match="'body' is binary, not string"):
        check_schema(schema)


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no column"):
        check_schema(StructType([]))
