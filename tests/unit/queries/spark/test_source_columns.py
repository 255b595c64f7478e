from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from rocketray.errors import ConfigError
from rocketray.queries.spark.source_columns import (
    COLUMN_SETS,
    ColumnSetName,
    Projection,
    default_schema,
)
from rocketray.store.reading import columns as store_columns

OURS = COLUMN_SETS["rocketray"]


def schema_of(*names: str, of: ColumnSetName = "rocketray") -> StructType:
    return StructType([StructField(name, COLUMN_SETS[of][name].kind) for name in names])


@pytest.mark.parametrize("name", OURS)
def test_each_column_has_the_type_that_the_store_gives_it(name: str) -> None:
    found = Projection.of(schema_of(name), "rocketray")
    assert found.schema.equals(store_columns.column_schema((name,)))
    assert found.stored == (name,)


@pytest.mark.proves("spark", "The options `columns` and `includeHeaders`")
def test_all_columns_but_those_on_request_are_read_without_a_schema() -> None:
    names = default_schema("rocketray").fieldNames()
    assert [*names, "msgId", "shardingKey"] == list(store_columns.COLUMN_TYPES)
    assert default_schema("kafka", ["headers"]).fieldNames() == [*COLUMN_SETS["kafka"]]
    assert default_schema("kafka").fieldNames() == [*COLUMN_SETS["kafka"]][:-1]


def test_a_schema_chooses_columns_in_any_order() -> None:
    projection = Projection.of(schema_of("msgId", "body", "topic"), "rocketray")
    assert projection.stored == ("msgId", "body", "topic")


@pytest.mark.proves("spark", "The options `columns` and `includeHeaders`")
def test_kafkas_columns_are_made_of_ours_and_each_of_those_is_read_once() -> None:
    names = [*COLUMN_SETS["kafka"]]
    projection = pickle.loads(pickle.dumps(Projection.of(schema_of(*names, of="kafka"), "kafka")))
    stored = {
        "shardingKey": ["o-1", None],
        "body": [b"a", b"b"],
        "topic": ["T", "T"],
        "queueId": [3, 3],
        "queueOffset": [7, 8],
        "storeTimestamp": [1_000_000, 2_000_000],
        "properties": [[("a", "1"), ("b", "2")], []],
    }
    assert projection.stored == tuple(stored)
    batch = pa.RecordBatch.from_pydict(
        stored, schema=store_columns.column_schema(projection.stored)
    )

    shaped = projection.shape(batch)
    shaped.validate(full=True)
    first, second = shaped.to_pylist()
    assert shaped.schema.equals(projection.schema)
    assert first.pop("timestamp").timestamp() == 1
    assert first == {
        "key": b"o-1",
        "value": b"a",
        "topic": "T",
        "partition": 3,
        "offset": 7,
        "timestampType": 1,
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}],
    }
    assert (second["key"], second["headers"]) == (None, [])
    assert projection.shape(batch.slice(1)).to_pylist() == [second]


def test_an_unknown_column_names_the_nearest() -> None:
    schema = StructType([StructField("queueOfset", LongType())])

    with pytest.raises(ConfigError, match="no column 'queueOfset'; did you mean 'queueOffset'"):
        Projection.of(schema, "rocketray")


def test_a_column_of_the_other_set_names_the_option() -> None:
    with pytest.raises(ConfigError, match="no column 'value'; columns=kafka has it"):
        Projection.of(schema_of("value", of="kafka"), "rocketray")


@pytest.mark.proves("spark", "An unknown column, or one of another type, is refused")
def test_another_type_is_refused() -> None:
    schema = StructType([StructField("body", StringType())])

    with pytest.raises(ConfigError, match="'body' is binary, not string"):
        Projection.of(schema, "rocketray")


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no column"):
        Projection.of(StructType([]), "rocketray")
