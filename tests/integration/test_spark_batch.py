"""``spark.read.format("rocketray")`` against what was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json
from support.nodes.shards import Shards
from support.nodes.stores import GOLDEN_STORE, open_golden

import rocketray as rr
from rocketray.message import Message, StoredMessage

pytestmark = pytest.mark.integration

COUNTS = (1000, 351, 0)  # the third queue never gets a message
TOPIC_COUNT = sum(COUNTS)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shards]:
    with Shards(tmp_path_factory.mktemp("data"), Trade=3, Other=1) as written:
        for queue_id, count in enumerate(COUNTS):
            if count:
                written.fill("Trade", queue_id, count)
        written.fill("Other", 0, 10)
        yield written


@pytest.fixture(scope="module")
def messages(shards: Shards) -> list[StoredMessage]:
    return shards.stored("Trade")


def read(
    spark: SparkSession, shards: Shards, schema: str | None = None, **options: str
) -> DataFrame:
    reader = spark.read.format("rocketray")
    reader = reader if schema is None else reader.schema(schema)
    return reader.options(**{"data": str(shards.data), "topic": "Trade"} | options).load()


def offsets_of(frame: DataFrame) -> list[tuple[int, int]]:
    table = frame.select("queueId", "queueOffset").toArrow()
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def places(messages: list[StoredMessage]) -> list[tuple[int, int]]:
    return sorted((message.queue_id, message.queue_offset) for message in messages)


def row_of(message: StoredMessage) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "body": message.body,
        "tags": message.tags,
        "keys": message.properties.get("KEYS"),
        "properties": sorted(message.properties.items()),
        "bornTimestamp": message.born_timestamp_ms,
        "storeTimestamp": message.store_timestamp_ms,
        "msgId": message.offset_message_id,
        "shardingKey": message.properties.get("__SHARDINGKEY"),
    }


def milliseconds(column: pa.ChunkedArray) -> list[int]:
    return [value // 1000 for value in column.cast(pa.timestamp("us")).cast("int64").to_pylist()]


@pytest.mark.proves("spark", "Each column holds what was written")
def test_every_column_of_every_message_is_what_was_written(
    spark: SparkSession, shards: Shards, messages: list[StoredMessage]
) -> None:
    default = read(spark, shards)
    schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in default.schema)
    table = read(spark, shards, f"{schema}, msgId string, shardingKey string").toArrow()

    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    columns["properties"] = [sorted(pairs) for pairs in columns["properties"]]
    for name in ("bornTimestamp", "storeTimestamp"):
        columns[name] = milliseconds(table.column(name))
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values())]  # noqa: B905

    def place(row: dict[str, Any]) -> tuple[int, int]:
        return row["queueId"], row["queueOffset"]

    assert len(rows) == TOPIC_COUNT
    assert sorted(rows, key=place) == sorted(map(row_of, messages), key=place)


@pytest.mark.parametrize(
    "column",
    [
        "topic string",
        "queueId int",
        "queueOffset bigint",
        "body binary",
        "tags string",
        "keys string",
        "properties map<string,string>",
        "bornTimestamp timestamp",
        "storeTimestamp timestamp not null",
        "msgId string",
        "shardingKey string",
    ],
)
def test_spark_takes_each_column_alone(spark: SparkSession, shards: Shards, column: str) -> None:
    frame = read(spark, shards, column, endingOffsets='{"Trade": {"0": 5, "1": 0}}')

    assert frame.toArrow().num_rows == 5


@pytest.mark.proves("spark", "The option `tags`")
@pytest.mark.parametrize("tags", ["pay", "pay||order", " Aa ", "BB", "Aa || BB", "nobody", "*"])
def test_tags_are_compared_exactly(
    spark: SparkSession, shards: Shards, messages: list[StoredMessage], tags: str
) -> None:
    wanted = {tag.strip() for tag in tags.split("||")}
    expected = [message for message in messages if tags == "*" or message.tags in wanted]

    assert offsets_of(read(spark, shards, tags=tags)) == places(expected)


@pytest.mark.proves(
    "spark",
    "Conditions of a batch on topic, queue, offset and tags are applied by the source, and the "
    "result is the same",
)
@pytest.mark.parametrize("hands_over", [True, False])
def test_conditions_on_tags_queues_and_offsets_reach_the_source(
    spark: SparkSession, shards: Shards, messages: list[StoredMessage], *, hands_over: bool
) -> None:
    expected = [
        message
        for message in messages
        if message.queue_id == 0 and message.queue_offset >= 500 and message.tags in {"Aa", "BB"}
        if b"1" in message.body
    ]
    assert expected
    divided = read(spark, shards, topic="Trade,Other", maxRecordsPerPartition="100")
    frame = divided.where(
        "topic = 'Trade' AND queueId = 0 AND queueOffset >= 500 AND tags IN ('Aa', 'BB')"
    ).where(col("body").cast("string").contains("1"))
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    spark.conf.set("spark.sql.python.filterPushdown.enabled", hands_over)
    try:
        assert offsets_of(frame) == places(expected)
        assert frame.rdd.getNumPartitions() == (5 if hands_over else 15)
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", True)


@pytest.mark.proves("spark", "The option `sql`")
def test_sql_sees_properties_and_a_failed_evaluation_is_no_match(
    spark: SparkSession, shards: Shards, messages: list[StoredMessage]
) -> None:
    def number(message: StoredMessage) -> int:
        return int(message.properties.get("a", -1))

    eu = [m for m in messages if 100 <= number(m) <= 400 and m.properties["region"] == "eu"]
    tagged = [m for m in messages if m.tags == "Aa" and number(m) == -1]

    between = read(spark, shards, sql="a BETWEEN 100 AND 400 AND region = 'eu'")
    assert offsets_of(between) == places(eu)
    assert len(eu) > 50
    assert offsets_of(read(spark, shards, sql="TAGS = 'Aa' AND a IS NULL")) == places(tagged)
    assert offsets_of(read(spark, shards, sql="region > 5")) == []


@pytest.mark.proves("spark", "The option `dialect`")
def test_numbers_are_compared_in_any_form_unless_the_dialect_is_rocketmqs(
    spark: SparkSession, tmp_path: Path
) -> None:
    amounts = ["99.0", "120.0", "130.5", "400", "500.01", "1.2e2", "none", "9" * 400]
    with Shards(tmp_path, Trade=1) as written:
        written.append([Message("Trade", b"", properties={"a": a}) for a in amounts], 0)
        stored = written.stored("Trade")

        def found(sql: str, **options: str) -> list[str]:
            places = offsets_of(read(spark, written, sql=sql, **options))
            return [stored[offset].properties["a"] for _, offset in places]

        between = "a BETWEEN 100 AND 500"
        assert found(between) == ["120.0", "130.5", "400", "1.2e2"]
        assert found(between, dialect="rocketray") == found(between)
        assert found(between, dialect="rocketmq") == ["400"]
        assert found("a > 500") == ["500.01", "9" * 400]


@pytest.mark.proves("spark", "The option `endingOffsets`")
def test_offsets_bound_each_queue_and_many_small_batches_are_one_table(
    spark: SparkSession, shards: Shards
) -> None:
    frame = read(
        spark,
        shards,
        startingOffsets='{"Trade": {"0": 995, "1": -1}}',
        endingOffsets='{"Trade": {"0": -1}}',
        arrowBatchRows="2",
    )

    assert offsets_of(frame) == [(0, offset) for offset in range(995, 1000)]


@pytest.mark.proves(
    "spark",
    "The options `startingTimestamp`, `startingOffsetsByTimestamp`, "
    "`startingOffsetsByTimestampStrategy`, `endingTimestamp` and `endingOffsetsByTimestamp`",
)
def test_times_bound_each_queue(
    spark: SparkSession, shards: Shards, messages: list[StoredMessage]
) -> None:
    times = sorted({message.store_timestamp_ms for message in messages})
    begin, end = times[len(times) // 3], times[-1]
    expected = [each for each in messages if begin <= each.store_timestamp_ms < end]
    assert 0 < len(expected) < len(messages)
    span = {"startingTimestamp": str(begin), "endingTimestamp": str(end)}

    frame = read(spark, shards, startingOffsetsByTimestampStrategy="latest", **span)
    assert offsets_of(frame) == places(expected)
    with pytest.raises(PySparkException, match="startingTimestamp: topic 'Trade' queue 2 has no"):
        read(spark, shards, **span).collect()


@pytest.mark.proves("spark", "The option `topic`")
def test_several_topics_are_one_table(spark: SparkSession, shards: Shards) -> None:
    counts = read(spark, shards, topic="Trade, Other").groupBy("topic").count().collect()

    assert {row["topic"]: row["count"] for row in counts} == {"Trade": TOPIC_COUNT, "Other": 10}


@pytest.mark.proves("spark", "The options `minPartitions` and `maxRecordsPerPartition`")
def test_a_queue_is_divided_into_tasks(
    spark: SparkSession, shards: Shards, messages: list[StoredMessage]
) -> None:
    whole = read(spark, shards)
    divided = read(spark, shards, minPartitions="5", maxRecordsPerPartition="300")

    assert whole.rdd.getNumPartitions() == 1
    assert divided.rdd.getNumPartitions() == 6
    assert offsets_of(divided) == places(messages)


@pytest.mark.proves("spark", "The options `columns` and `includeHeaders`")
def test_a_query_written_for_kafka_reads_kafkas_columns(
    spark: SparkSession, shards: Shards
) -> None:
    reader = spark.read.format("rocketray").option("data", str(shards.data))
    frame = reader.options(subscribe="Trade", columns="kafka", includeHeaders="true").load()
    first = frame.where("partition = 0 AND offset < 3").orderBy("offset")
    rows = first.selectExpr("cast(value AS string) AS text", "key", "inline(headers) AS (name, is)")
    regions = [(row["text"], bytes(row["is"])) for row in rows.collect() if row["name"] == "region"]

    assert regions == [("", b"eu"), ("Trade 0 1 ", b"us"), ("Trade 0 2 Trade 0 2 ", b"asia")]


@pytest.mark.proves("spark", "The option `path`")
def test_a_brokers_store_is_loaded_by_its_path(spark: SparkSession) -> None:
    with open_golden() as store:
        keys = {(one.topic, one.queue_id, one.queue_offset) for one in store.reads.scan()}
        expected = {key for key in keys if key[0] in ("TopicA", "TopicB")}
    reader = spark.read.format("rocketray").schema("topic string, queueId int, queueOffset bigint")
    frame = reader.option("topicPattern", "Topic[AB]").load(str(GOLDEN_STORE))

    assert set(map(tuple, frame.collect())) == expected


class Order(rr.Record):
    order_id: str
    amount: float


@pytest.mark.proves("spark", "`rr.spark.schema`")
def test_bodies_become_typed_columns(spark: SparkSession, tmp_path: Path) -> None:
    with Shards(tmp_path, Orders=1) as written:
        bodies = [Order(f"o-{n}", n / 2).dumps(serializer="json") for n in range(3)]
        written.append([Message("Orders", body) for body in bodies], 0)
        frame = read(spark, written, "body binary", topic="Orders")
        order = from_json(col("body").cast("string"), rr.spark.schema(Order))
        rows = frame.select(order.alias("order")).select("order.*").collect()

    assert sorted(map(tuple, rows)) == [("o-0", 0.0), ("o-1", 0.5), ("o-2", 1.0)]


def test_queues_may_be_assigned(spark: SparkSession, shards: Shards) -> None:
    reader = spark.read.format("rocketray").option("data", str(shards.data))
    frame = reader.option("assign", '{"Trade": [1], "Other": [0]}').load()
    counts = frame.groupBy("topic", "queueId").count().collect()

    assert sorted(map(tuple, counts)) == [("Other", 0, 10), ("Trade", 1, COUNTS[1])]


@pytest.mark.proves("spark", "SQL finds the source without an import")
def test_sql_finds_the_source_without_a_word_of_python(spark: SparkSession, shards: Shards) -> None:
    spark.sql(
        "CREATE TEMPORARY VIEW trade_view USING rocketray "
        f"OPTIONS (topic 'Trade', data '{shards.data}', tags 'pay')"
    )

    assert spark.sql("SELECT count(*) AS n FROM trade_view").collect()[0]["n"] == 271


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topik": "x"}, "unknown option 'topik'; did you mean topic?"),
        ({"tags": "a", "sql": "a > 1"}, "both tags and sql are given"),
        ({"sql": "a >"}, r"a >\n"),
        ({"topic": "Nobody"}, "topic 'Nobody' does not exist"),
        ({"startingOffsets": '{"Trade": {"0": 1001}}'}, "offset 1001 is out of range"),
        (
            {"startingOffsets": "latest", "endingOffsets": "earliest"},
            "which is after its end, 0",
        ),
        ({"maxOffsetsPerTrigger": "5"}, "is for readStream"),
    ],
)
def test_a_wrong_option_is_an_error_that_says_what_to_do(
    spark: SparkSession, shards: Shards, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        read(spark, shards, "queueOffset bigint", **options).collect()

    assert message.replace(r"\n", "\n") in str(caught.value)


def test_a_directory_without_a_node_is_named(
    spark: SparkSession, shards: Shards, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match=f"{tmp_path} is not a node's data directory"):
        read(spark, shards, data=str(tmp_path)).collect()


@pytest.mark.proves("spark", "A write that cannot be is refused, with what to do")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no node runs on"),
        ({"path": "Trade"}, "rows go into a topic and not into a directory"),
        ({"startingOffsets": "latest"}, "option 'startingOffsets' is for reading"),
        ({"guarantee": "once"}, "guarantee='once': write exactly_once or at_least_once"),
    ],
)
def test_a_write_that_cannot_be_is_refused_with_what_to_do(
    spark: SparkSession, shards: Shards, options: dict[str, str], said: str
) -> None:
    rows = spark.range(1).selectExpr("string(id) AS body")
    writer = rows.write.format("rocketray").mode("append").option("topic", "Trade")
    with pytest.raises(PySparkException, match=said):
        writer.options(data=str(shards.data), **options).save()


@pytest.mark.proves("spark", "An unknown column, or one of another type, is refused")
def test_a_wrong_column_is_an_error(spark: SparkSession, shards: Shards) -> None:
    with pytest.raises(PySparkException, match="no column 'bodi'; did you mean 'body'"):
        read(spark, shards, "bodi binary").collect()
