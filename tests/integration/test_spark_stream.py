"""``spark.readStream.format("rocketray")``: where it starts, how it ends, what it does on a loss."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from support.nodes.shards import Shards

import rocketray as rr

pytestmark = pytest.mark.integration

COLUMNS = "queueId int, queueOffset bigint"


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    with Shards(tmp_path / "data", Trade=2) as written:
        yield written


class Collected:
    """A sink in this process: the places of the messages, batch by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int]]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        columns = frame.toArrow().columns
        self.batches[batch_id] = [*zip(*(column.to_pylist() for column in columns), strict=True)]

    def all(self) -> list[tuple[int, int]]:
        return sorted(place for batch in self.batches.values() for place in batch)


def start(
    spark: SparkSession,
    shards: Shards,
    sink: Collected,
    trigger: dict[str, Any],
    options: dict[str, str] | None = None,
) -> StreamingQuery:
    given = {"data": str(shards.data), "longPollMs": "50"} | (options or {})
    if "topicPattern" not in given:
        given.setdefault("topic", "Trade")
    frame = spark.readStream.format("rocketray").schema(COLUMNS).options(**given).load()
    writer = frame.writeStream.foreachBatch(sink)
    checkpoint = str(shards.data.parent / "checkpoint")
    return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()


def run(spark: SparkSession, shards: Shards, **options: str) -> Collected:
    """Read what is available now, from the checkpoint on."""
    sink = Collected()
    query = start(spark, shards, sink, {"availableNow": True}, options)
    assert query.awaitTermination(60)
    return sink


def places(**counts: range) -> list[tuple[int, int]]:
    return sorted((int(name[1:]), offset) for name, part in counts.items() for offset in part)


@pytest.mark.proves("spark", "`availableNow` ends while producers continue")
def test_a_run_over_what_is_available_ends_while_a_producer_goes_on(
    spark: SparkSession, shards: Shards
) -> None:
    shards.fill("Trade", 0, 900)
    shards.fill("Trade", 1, 100)
    stop = threading.Event()

    def produce() -> None:
        while not stop.wait(0.02):
            shards.fill("Trade", 0, 5)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        sink = run(spark, shards, startingOffsets="earliest", maxOffsetsPerTrigger="300")
    finally:
        stop.set()
        producer.join()

    read = sink.all()
    end = max(offset for queue, offset in read if queue == 0) + 1
    assert read == places(q0=range(end), q1=range(100))
    assert 900 <= end < len(shards.stored("Trade")) - 100
    assert len(sink.batches) >= 4
    assert all(len(batch) <= 302 for batch in sink.batches.values())


@pytest.mark.proves("spark", "The option `startingOffsets`")
@pytest.mark.proves("spark", "`rr.spark.lag_metrics`")
def test_a_stream_starts_at_the_end_and_reads_new_queues_from_their_beginning(
    spark: SparkSession, shards: Shards
) -> None:
    shards.fill("Trade", 0, 40)
    sink = Collected()
    query = start(spark, shards, sink, {"processingTime": "0 seconds"})
    try:
        while not query.lastProgress:
            assert not query.awaitTermination(1)
        shards.fill("Trade", 0, 3)
        shards.create("Trade", 3)
        shards.fill("Trade", 2, 4)
        query.processAllAvailable()
    finally:
        query.stop()

    assert sink.all() == places(q0=range(40, 43), q2=range(4))
    progress = query.lastProgress
    assert progress is not None
    assert '"0":43' in progress["sources"][0]["latestOffset"].replace(" ", "")
    assert rr.spark.lag_metrics(progress)[0]["maxOffsetsBehindLatest"] == "0"


@pytest.mark.proves("spark", "The option `startingOffsets`")
@pytest.mark.proves("spark", "A query continues where its checkpoint stands")
def test_a_query_goes_on_where_its_checkpoint_stands(spark: SparkSession, shards: Shards) -> None:
    shards.fill("Trade", 0, 10)
    assert run(spark, shards, startingOffsets="earliest").all() == places(q0=range(10))

    shards.fill("Trade", 0, 5)
    shards.fill("Trade", 1, 1)

    assert run(spark, shards, startingOffsets="latest").all() == places(
        q0=range(10, 15), q1=range(1)
    )
    assert run(spark, shards).all() == []


@pytest.mark.proves("spark", "The option `failOnDataLoss`")
def test_deleted_messages_are_an_error_or_skipped(spark: SparkSession, shards: Shards) -> None:
    shards.fill("Trade", 0, 10)
    run(spark, shards, startingOffsets="earliest")
    shards.fill("Trade", 0, 20)
    shards.delete_before("Trade", 0, 25)

    with pytest.raises(PySparkException, match=r"'Trade' queue 0: messages 10 to 24 were deleted"):
        run(spark, shards)
    assert run(spark, shards, failOnDataLoss="false").all() == places(q0=range(25, 30))


@pytest.mark.proves("spark", "A checkpoint of another topic is refused")
def test_a_checkpoint_of_another_topic_is_refused(spark: SparkSession, shards: Shards) -> None:
    shards.fill("Trade", 0, 1)
    run(spark, shards, startingOffsets="earliest")
    shards.create("Other", 1)

    with pytest.raises(PySparkException, match="belongs to a query that also reads Trade"):
        run(spark, shards, topic="Other")


@pytest.mark.proves(
    "spark",
    "A checkpoint of a topic that was recreated is refused, or read from its first message with a "
    "warning",
)
def test_a_topic_made_again_and_grown_beyond_the_checkpoint_is_not_read_on(
    spark: SparkSession, shards: Shards
) -> None:
    shards.fill("Trade", 0, 10)
    run(spark, shards, startingOffsets="earliest")
    shards.make_again("Trade", 2)
    shards.fill("Trade", 0, 30)

    with pytest.raises(PySparkException, match=r"'Trade'.*it was deleted and recreated"):
        run(spark, shards)
    assert run(spark, shards, failOnDataLoss="false").all() == places(q0=range(30))
    assert run(spark, shards).all() == []


@pytest.mark.proves("spark", "The options `topicPattern` and `assign`")
@pytest.mark.proves(
    "spark",
    "A topic of the checkpoint that does not exist any more is an error, or left out with a "
    "warning",
)
def test_topics_that_match_come_and_go(spark: SparkSession, shards: Shards) -> None:
    pattern = {"topicPattern": "Tr.*"}
    shards.fill("Trade", 0, 3)
    assert run(spark, shards, startingOffsets="earliest", **pattern).all() == places(q0=range(3))

    shards.create("Trips", 2)
    shards.fill("Trips", 1, 4)
    assert run(spark, shards, **pattern).all() == places(q1=range(4))

    shards.delete("Trips")
    with pytest.raises(PySparkException, match="'Trips', which the checkpoint has, does not exist"):
        run(spark, shards, **pattern)
    shards.fill("Trade", 0, 1)
    assert run(spark, shards, failOnDataLoss="false", **pattern).all() == places(q0=range(3, 4))


@pytest.mark.proves("spark", "The options `minOffsetsPerTrigger` and `maxTriggerDelay`")
def test_a_micro_batch_waits_for_its_least_messages(spark: SparkSession, shards: Shards) -> None:
    shards.fill("Trade", 0, 2)
    sink = Collected()
    limits = {"minOffsetsPerTrigger": "5", "startingOffsets": "earliest"}
    query = start(spark, shards, sink, {"processingTime": "0 seconds"}, limits)
    try:
        while not sink.batches:
            assert not query.awaitTermination(1)
        shards.fill("Trade", 0, 3)
        assert not query.awaitTermination(1)
        shards.fill("Trade", 1, 2)
        while len(sink.batches) < 2:
            assert not query.awaitTermination(1)
    finally:
        query.stop()

    assert [len(batch) for batch in sink.batches.values()] == [2, 5]


@pytest.mark.proves("spark", "The option `allowFilterChange`, and another filter on a checkpoint")
def test_another_filter_on_a_checkpoint_is_taken_only_where_it_is_allowed(
    spark: SparkSession, shards: Shards
) -> None:
    shards.fill("Trade", 0, 10)  # the tags are pay, order, none, Aa and BB in turn
    read = run(spark, shards, startingOffsets="earliest", tags="pay")
    assert read.all() == [(0, 0), (0, 5)]
    shards.fill("Trade", 0, 10)

    with pytest.raises(
        PySparkException, match=r"filter tags 'pay', and this query has tags 'order'"
    ):
        run(spark, shards, tags="order")
    assert run(spark, shards, tags="order", allowFilterChange="true").all() == [(0, 11), (0, 16)]
    assert run(spark, shards, tags="order").all() == []


def test_a_query_by_the_name_of_a_filter_keeps_its_version(
    spark: SparkSession, shards: Shards
) -> None:
    shards.fill("Trade", 0, 10)
    shards.save_filter("Trade", "ours", rr.Subscription.tags("pay"))
    read = run(spark, shards, startingOffsets="earliest", filter="ours")
    assert read.all() == [(0, 0), (0, 5)]
    shards.save_filter("Trade", "ours", rr.Subscription.tags("order"))
    shards.fill("Trade", 0, 10)
    assert run(spark, shards, filter="ours").all() == [(0, 10), (0, 15)]
    options = {"data": str(shards.data), "topic": "Trade", "filter": "ours"}
    frame = spark.read.format("rocketray").schema(COLUMNS).options(**options).load()
    assert sorted(map(tuple, frame.collect())) == [(0, 1), (0, 6), (0, 11), (0, 16)]


@pytest.mark.proves("spark", "A checkpoint without `@` is accepted, with one line in the log")
def test_a_checkpoint_of_an_earlier_release_is_read_on(spark: SparkSession, shards: Shards) -> None:
    shards.fill("Trade", 0, 10)
    run(spark, shards, startingOffsets="earliest")
    without_origin(shards.data.parent / "checkpoint")
    shards.fill("Trade", 0, 5)

    assert run(spark, shards, tags="pay").all() == [(0, 10)]
    with pytest.raises(PySparkException, match="allowFilterChange"):
        run(spark, shards)


def without_origin(checkpoint: Path) -> None:
    """Make the offsets of a checkpoint what they were before they said whose they are."""
    for log in (checkpoint / "offsets").glob("[0-9]*"):
        *head, offset = log.read_text().splitlines()
        kept = {topic: queues for topic, queues in json.loads(offset).items() if topic != "@"}
        assert kept
        log.write_text("\n".join([*head, json.dumps(kept)]))
        log.with_name(f".{log.name}.crc").unlink()


@pytest.mark.proves("spark", "The option `endingOffsets`")
def test_a_stream_has_no_end(spark: SparkSession, shards: Shards) -> None:
    with pytest.raises(PySparkException, match=r"endingOffsets is for spark\.read"):
        run(spark, shards, endingOffsets="latest")
