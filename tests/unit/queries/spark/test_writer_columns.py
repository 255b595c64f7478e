"""The columns of a write: checked by name and type, and made those of messages."""

from __future__ import annotations

import pyarrow as pa
import pytest
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
    TimestampNTZType,
    TimestampType,
)

from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.queries.spark.source_columns import ColumnSetName
from rocketray.queries.spark.writer_columns import WriterColumns

pytestmark = pytest.mark.proves("spark", "The columns of a write")

HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))


TEXT = StringType()
TYPES: dict[str, DataType] = {
    "string": TEXT,
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
    "strings": ArrayType(TEXT),
    "ints": ArrayType(IntegerType()),
    "map": MapType(TEXT, TEXT),
    "numbers": MapType(TEXT, IntegerType()),
    "headers": ArrayType(
        StructType([StructField("key", TEXT), StructField("value", BinaryType())])
    ),
}


def columns_of(
    schema: str, name: ColumnSetName = "rocketray", *, topic: bool = True
) -> WriterColumns:
    fields = (field.split() for field in schema.split(", "))
    kinds = StructType([StructField(column, TYPES[kind]) for column, kind in fields])
    return WriterColumns.of(kinds, name, has_topic=topic)


def test_our_columns_are_taken_as_they_are() -> None:
    schema = (
        "body binary, topic string, tags string, keys strings, properties map, shardingKey string, "
        "queueId int, deliverAt timestamp"
    )
    names = [field.split()[0] for field in schema.split(", ")]
    assert [*columns_of(schema).names] == names
    columns_of("body string, keys string, queueId bigint")
    batch = pa.RecordBatch.from_pydict({"body": ["a"], "tags": ["t"]})
    assert columns_of("body string, tags string").shape(batch).equals(batch)
    keys = pa.array([["a", "b"]], pa.list_(pa.field("element", pa.string(), nullable=False)))
    found = columns_of("keys strings, body string").shape(
        pa.RecordBatch.from_arrays([keys, pa.array(["a"])], names=["keys", "body"])
    )
    assert found.schema.field("keys").type == pa.list_(pa.string()), "what the encoder joins"


def test_kafkas_columns_become_ours() -> None:
    columns = columns_of(
        "key binary, value string, partition int, headers headers",
        "kafka",
    )
    headers = pa.array(
        [None, [{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}], [], None], HEADERS
    )
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([b"k", None, b"\xc3\xa9", None]),
            pa.array(["v"] * 4),
            pa.array([0, None, 1, 2], pa.int32()),
            headers,
        ],
        names=["key", "value", "partition", "headers"],
    )
    found = columns.shape(batch.slice(1)).to_pylist()
    assert [each["properties"] for each in found] == [[("a", "1"), ("b", "2")], [], []]
    assert [each["shardingKey"] for each in found] == [None, "é", None]
    assert [each["queueId"] for each in found] == [None, 1, 2]
    assert [each["body"] for each in found] == ["v"] * 3


def test_what_a_node_noted_about_a_row_that_was_read_is_left_out() -> None:
    pairs = [("a", "1"), ("UNIQ_KEY", "U"), ("RETRY_TOPIC", "X"), ("DELAY", "3"), ("b", "2")]
    rows = pa.array([pairs, None], pa.map_(pa.string(), pa.string()))
    batch = pa.RecordBatch.from_arrays([pa.array(["v"] * 2), rows], names=["body", "properties"])
    found = columns_of("body string, properties map").shape(batch).to_pylist()
    assert [each["properties"] for each in found] == [[("a", "1"), ("b", "2")], None]
    headers = pa.array([[{"key": name, "value": text.encode()} for name, text in pairs]], HEADERS)
    batch = pa.RecordBatch.from_arrays([pa.array(["v"]), headers], names=["value", "headers"])
    [found_row] = columns_of("value string, headers headers", "kafka").shape(batch).to_pylist()
    assert found_row["properties"] == [("a", "1"), ("b", "2")]


@pytest.mark.parametrize(("key", "value"), [(b"\xff", b"v"), (b"k", b"\xff")])
def test_a_key_or_a_header_that_is_no_text_is_refused(key: bytes, value: bytes) -> None:
    columns = columns_of("value binary, key binary, headers headers", "kafka")
    headers = pa.array([[{"key": "a", "value": value}]], HEADERS)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"v"]), pa.array([key]), headers], names=["value", "key", "headers"]
    )
    with pytest.raises(InvalidMessageError, match=r"is not UTF-8.*base64"):
        columns.shape(batch)


@pytest.mark.parametrize(
    ("schema", "name", "topic", "said"),
    [
        ("bodi string", "rocketray", True, "no column 'bodi'; did you mean 'body'"),
        ("value string", "rocketray", True, r"columns=kafka has it: .option\('columns', 'kafka'\)"),
        ("body string", "kafka", True, "columns=rocketray has it"),
        ("body string, queueOffset bigint", "rocketray", True, r"'queueOffset'.*\.select"),
        ("tags string", "rocketray", True, "column 'body' is missing.*to_json"),
        ("key string", "kafka", True, "column 'value' is missing"),
        ("body string", "rocketray", False, "it is not said to which topic"),
        ("body int", "rocketray", True, "'body' is int, and has to be binary or string; cast it"),
        ("body string, tags int", "rocketray", True, "'tags' is int, and has to be string"),
        ("body string, keys ints", "rocketray", True, "string, or array of string"),
        ("body string, properties numbers", "rocketray", True, "map of string to string"),
        ("body string, queueId string", "rocketray", True, "has to be int"),
        ("body string, deliverAt string", "rocketray", True, "has to be timestamp"),
        ("body string, deliverAt timestamp_ntz", "rocketray", True, "has to be timestamp"),
        ("value string, headers map", "kafka", True, "array of struct"),
    ],
)
def test_columns_that_cannot_be_are_refused_with_what_to_do(
    schema: str,
    name: ColumnSetName,
    topic: bool,
    said: str,
) -> None:
    with pytest.raises(ConfigError, match=said):
        columns_of(schema, name, topic=topic)
