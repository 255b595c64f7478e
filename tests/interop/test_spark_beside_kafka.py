"""A query that was written for Spark's Kafka source, on the same messages in Kafka and here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.harness.maven import MavenError
from support.nodes.shards import Shards
from support.rocketmq.kafka import KafkaBroker, source_jars

from rocketray.queries.spark.session import spark_session

pytestmark = pytest.mark.timeout(300)
QUEUES, COUNT = 3, 200


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shards]:
    with Shards(tmp_path_factory.mktemp("data"), Trade=QUEUES) as written:
        for queue_id in range(QUEUES):
            written.fill("Trade", queue_id, COUNT + queue_id)
        yield written


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        jars = ",".join(map(str, source_jars()))
    except MavenError as error:
        pytest.skip(f"interop needs the jars of Spark's Kafka source: {error}")
    work = tmp_path_factory.mktemp("spark")
    settings = {"spark.jars": jars}
    session = spark_session("kafka", work_directory=work, short_lived=True, settings=settings)
    yield session
    session.stop()


def read(spark: SparkSession, name: str, **options: str) -> DataFrame:
    reader = spark.read.format(name).options(subscribe="Trade", includeHeaders="true", **options)
    return reader.load()


def answers(frame: DataFrame) -> list[Any]:
    """What queries of Kafka's users find."""
    counts = frame.groupBy("partition").count().orderBy("partition").collect()
    texts = frame.selectExpr(
        "cast(key AS string)", "cast(value AS string)", "topic", "partition", "offset", "headers"
    )
    return [*counts, *texts.orderBy("partition", "offset").collect()]


@pytest.mark.proves(
    "spark",
    "With `columns=kafka` queries find the same as with Spark's Kafka source, also between offsets",
)
def test_it_finds_the_same(spark: SparkSession, shards: Shards, tmp_path: Path) -> None:
    ours = read(spark, "rocketray", columns="kafka", data=str(shards.data))
    with KafkaBroker(tmp_path / "kafka", QUEUES) as broker:
        place = {"kafka.bootstrap.servers": broker.address}
        rows = ours.select("key", "value", "partition", "headers")
        rows.write.format("kafka").options(topic="Trade", **place).save()
        theirs = read(spark, "kafka", **place)

        assert {*ours.columns} == {*theirs.columns}
        found = answers(ours)
        assert found == answers(theirs)
        assert len(found) == QUEUES + QUEUES * COUNT + sum(range(QUEUES))
        ends = '{"Trade": {"0": 7, "1": -1, "2": 1}}'
        some = {"startingOffsets": '{"Trade": {"0": 3, "1": 199, "2": -2}}', "endingOffsets": ends}
        few = answers(read(spark, "rocketray", columns="kafka", data=str(shards.data), **some))
        assert few == answers(read(spark, "kafka", **place, **some))
        assert len(few) == 3 + 4 + 2 + 1
