"""``df.write`` and ``df.writeStream`` into a topic: each row once, whatever fails and is repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from support.nodes.staging import bodies_of, step
from support.nodes.staging_server import SteppedStaging, served

import rocketray as rr
from rocketray.queries.spark.failures import describe_failure
from rocketray.runtime.files.paths import staged_directory
from rocketray.testing import Broker

pytestmark = pytest.mark.integration

ROWS = 300


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as broker:
        broker.topics.create("In", queues=2)
        broker.topics.create("Out", queues=3)
        with broker.producer() as producer:
            for queue_id in range(2):
                bodies = [b"%d-%d" % (queue_id, row) for row in range(ROWS // 2)]
                producer.send_many("In", bodies=bodies, queue_id=queue_id)
        yield broker


@pytest.fixture
def staging(broker: Broker) -> Iterator[SteppedStaging]:
    with served(broker) as (staging, _):
        yield staging


EXPECTED = Counter({f"{queue}-{row}": 1 for queue in range(2) for row in range(ROWS // 2)})


def source(spark: SparkSession, broker: Broker) -> DataFrame:
    options = {"topic": "In", "data": str(broker.data), "maxOffsetsPerTrigger": "100"}
    reader = spark.readStream.format("rocketray").schema("body binary")
    return reader.options(**options, startingOffsets="earliest").load()


def run(frame: DataFrame, broker: Broker, **options: str) -> str | None:
    """Write what is available; return the error of the query, if it fails."""
    given = {"topic": "Out", "data": str(broker.data), "checkpointLocation": checkpoint_of(broker)}
    writer = frame.writeStream.format("rocketray").options(**(given | options))
    query = writer.trigger(availableNow=True).start()
    try:
        query.awaitTermination(120)
    except PySparkException as error:
        return describe_failure(error)
    return None


def checkpoint_of(broker: Broker) -> str:
    return str(broker.data.parent / "checkpoint")


def lose_last_commit(broker: Broker) -> int:
    """Remove what Spark wrote after its last batch; return the number of that batch."""
    commits = Path(checkpoint_of(broker), "commits")
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    return last


def test_a_batch_is_written_once_with_all_of_its_columns(
    spark: SparkSession, broker: Broker, staging: SteppedStaging
) -> None:
    rows = spark.range(ROWS, numPartitions=3).selectExpr(
        "string(id) AS body", "concat('t', id % 2) AS tags", "array(concat('k', id)) AS keys",
        "map('id', string(id)) AS properties", "string(id % 7) AS shardingKey",
        "CAST(NULL AS timestamp) AS deliverAt",
    )  # fmt: skip
    options = {"topic": "Out", "data": str(broker.data)}
    rows.write.format("rocketray").options(**options).mode("append").save()
    found = {message.body.decode(): message for message in broker.stored("Out")}
    assert bodies_of(broker) == {str(row): 1 for row in range(ROWS)}
    seven = found["7"]
    assert (seven.tags, seven.keys, seven.properties["id"]) == ("t1", ["k7"], "7")
    keys = {(one.properties["__SHARDINGKEY"], one.queue_id) for one in found.values()}
    assert len(keys) == 7, "all rows of a key are in one queue"
    assert len(staging.batches[0].fragments) == 3
    assert not [*staged_directory(broker.data).iterdir()]


@pytest.mark.proves("spark", "`txnAppId` with `txnVersion`")
def test_a_batch_with_a_version_is_written_once_and_one_that_fails_not_at_all(
    spark: SparkSession, broker: Broker, staging: SteppedStaging
) -> None:
    rows = spark.range(10).selectExpr("string(id) AS value", "CAST(NULL AS int) AS partition")
    writer = rows.write.format("rocketray").mode("append").options(columns="kafka", topic="Out")
    writer = writer.options(data=str(broker.data), txnAppId="app", txnVersion="3")
    staging.failing = 1
    with pytest.raises(PySparkException, match="it fails before the decision"):
        writer.save()
    assert not [*staged_directory(broker.data).iterdir()], "an abort removes what is not decided"
    for _ in range(2):
        writer.save()
    assert bodies_of(broker) == {str(row): 1 for row in range(10)}
    bad = spark.range(10).selectExpr("string(id) AS body", "IF(id = 9, 'a||b', 'a') AS tags")
    with pytest.raises(PySparkException, match="can never be matched exactly"):
        bad.write.format("rocketray").mode("append").options(
            topic="Out", data=str(broker.data)
        ).save()
    assert bodies_of(broker) == {str(row): 1 for row in range(10)}


@pytest.mark.proves(
    "spark",
    "A task that fails after some of its rows, a commit that fails, one whose answer is lost, and "
    "one that Spark lost: each row is stored once",
)
def test_a_stream_whose_commits_fail_or_are_lost_writes_each_row_once(
    spark: SparkSession, broker: Broker, staging: SteppedStaging
) -> None:
    frame = source(spark, broker)
    staging.failing = 1
    assert "it fails before the decision" in str(run(frame, broker))
    staging.losing = 1
    assert "the answer is lost" in str(run(frame.repartition(3), broker))
    assert run(frame.coalesce(1), broker) is None
    assert bodies_of(broker) == EXPECTED
    last = lose_last_commit(broker)
    assert run(frame.repartition(2), broker) is None
    assert bodies_of(broker) == EXPECTED, "Spark repeated the batch of which it lost the commit"
    numbers = [batch.name.number for batch in staging.batches]
    assert numbers.count(last) == 2
    assert len({batch.name.writer for batch in staging.batches}) == 1
    assert len({batch.run for batch in staging.batches}) == 4, "each start has a run of its own"
    assert not [*staged_directory(broker.data).iterdir()]


@pytest.mark.proves(
    "spark",
    "A task that fails after some of its rows, a commit that fails, one whose answer is lost, and "
    "one that Spark lost: each row is stored once",
)
def test_a_task_that_fails_after_some_of_its_rows_leaves_nothing(
    spark: SparkSession, broker: Broker, staging: SteppedStaging, tmp_path: Path
) -> None:
    mark = tmp_path / "failed"

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 20)
            if not mark.exists():
                mark.touch()
                raise OSError("a task fails, as the test asked")
            yield batch.slice(20)

    conf = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(conf, "10")
    try:
        frame = source(spark, broker).mapInArrow(fail_once, "body binary")
        assert "a task fails" in str(run(frame, broker))
        assert not bodies_of(broker)
        assert run(frame, broker) is None
    finally:
        spark.conf.unset(conf)
    step(broker)
    assert bodies_of(broker) == EXPECTED
    assert not [*staged_directory(broker.data).iterdir()]


@pytest.mark.proves("spark", "At least once repeats rows, and needs no decision")
def test_at_least_once_needs_no_decision_and_repeats_rows(
    spark: SparkSession, broker: Broker, staging: SteppedStaging
) -> None:
    frame = source(spark, broker)
    assert run(frame, broker, guarantee="at_least_once") is None
    assert bodies_of(broker) == EXPECTED
    lose_last_commit(broker)
    assert run(frame, broker, guarantee="at_least_once") is None
    assert set(bodies_of(broker)) == set(EXPECTED)
    assert sum(bodies_of(broker).values()) > ROWS, "the batch was repeated, as the guarantee says"
    assert not staging.batches


def test_a_thread_that_was_entered_writes_a_stream(
    spark: SparkSession, broker: Broker, staging: SteppedStaging
) -> None:
    frame = source(spark, broker)

    def start(*, is_entered: bool) -> str | None:
        if is_entered:
            rr.spark.enter_thread(spark)
        try:
            return run(frame, broker)
        except (PySparkException, Py4JError) as error:
            return str(error)

    with ThreadPoolExecutor(1) as thread:
        assert "[DATA_SOURCE_NOT_FOUND]" in str(thread.submit(start, is_entered=False).result())
        assert thread.submit(start, is_entered=True).result() is None
    assert bodies_of(broker) == EXPECTED
    assert staging.batches


def test_a_stream_that_cannot_be_written_says_so(spark: SparkSession, broker: Broker) -> None:
    frame = source(spark, broker).groupBy("body").count()
    writer: Any = frame.selectExpr("body").writeStream.format("rocketray").outputMode("complete")
    options = {"data": str(broker.data), "checkpointLocation": checkpoint_of(broker)}
    query = writer.options(**options).option("topic", "Out").start()
    with pytest.raises(PySparkException, match=r"use outputMode\('append'\)"):
        query.awaitTermination(60)
