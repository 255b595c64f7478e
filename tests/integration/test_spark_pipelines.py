"""Pipelines that users run on Spark, on topics: random input, against the same in plain Python.

Their state is in RocksDB. Each run ends with what is available, and the next one continues from
the checkpoint, as a restarted query does.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col, count, expr, from_json, window
from support.nodes.shards import Shards

from rocketray.message import Message

pytestmark = pytest.mark.integration

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
BEGIN_MS = 1_700_000_000_000
WINDOW_MS = 60_000
DELAY_MS = 30_000
REGIONS = {"pay": "money", "order": "goods", "ship": "goods"}


@pytest.fixture
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of the run, with the state of its queries in RocksDB, all in one partition."""
    settings = {
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.shuffle.partitions": "1",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, own in before.items():
        assert own is not None
        spark.conf.set(name, own)


class Pipeline:
    """A query on topics, with its checkpoint and the rows that its runs returned."""

    def __init__(self, make: Callable[[], DataFrame], directory: Path) -> None:
        self._make = make
        self._checkpoint = str(directory / "checkpoint")
        self.rows: list[tuple[Any, ...]] = []

    def run(self) -> None:
        """Start it again, and process what is available."""
        writer = self._make().writeStream.foreachBatch(self._take).outputMode("append")
        query = writer.option("checkpointLocation", self._checkpoint).trigger(availableNow=True)
        assert query.start().awaitTermination(100)

    def _take(self, frame: DataFrame, _batch_id: int) -> None:
        self.rows += map(tuple, frame.collect())


def stream(spark: SparkSession, shards: Shards, topic: str, schema: str) -> DataFrame:
    reader = spark.readStream.format("rocketray").schema(schema).option("topic", topic)
    return reader.option("data", str(shards.data)).option("startingOffsets", "earliest").load()


class Event(NamedTuple):
    kind: str
    born_ms: int


def windows_of(runs: list[list[Event]]) -> tuple[Counter[tuple[str, int]], int]:
    """What each run adds to the windows that its watermark closes; and how many came too late."""
    state, closed = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    watermark_ms = late = 0
    for events in runs:
        for event in events:
            begin_ms = event.born_ms // WINDOW_MS * WINDOW_MS
            if begin_ms + WINDOW_MS <= watermark_ms:
                late += 1
            else:
                state[REGIONS[event.kind], begin_ms] += 1
        watermark_ms = max(watermark_ms, max(each.born_ms for each in events) - DELAY_MS)
        for key in [key for key in state if key[1] + WINDOW_MS <= watermark_ms]:
            closed[key] += state.pop(key)
    return closed, late


@pytest.mark.proves(
    "spark",
    "Windows with a watermark over a join with a table are what plain Python computes, with state "
    "in RocksDB, across a restart",
)
def test_windows_over_a_static_table_close_with_the_watermark_in_each_run(
    spark: SparkSession, tmp_path: Path, rng: random.Random
) -> None:
    runs = [
        [
            Event(rng.choice([*REGIONS]), BEGIN_MS + begin_s * 1000 + rng.randrange(300_000))
            for _ in range(300)
        ]
        for begin_s in (0, 200)
    ]
    regions = spark.createDataFrame([*REGIONS.items()], "tags string, region string")
    with Shards(tmp_path / "data", Trade=2) as shards:

        def query() -> DataFrame:
            rows = stream(spark, shards, "Trade", "tags string, bornTimestamp timestamp")
            joined = rows.join(broadcast(regions), "tags")
            timed = joined.withWatermark("bornTimestamp", f"{DELAY_MS} milliseconds")
            grouped = timed.groupBy("region", window("bornTimestamp", f"{WINDOW_MS} milliseconds"))
            begin = (col("window.start").cast("double") * 1000).cast("long")
            return grouped.agg(count("*").alias("count")).select("region", begin, "count")

        pipeline = Pipeline(query, tmp_path)
        for events in runs:
            for number, (kind, born_ms) in enumerate(events):
                sent = Message("Trade", b"", tags=kind, born_timestamp_ms=born_ms)
                shards.append([sent], number % 2)
            pipeline.run()

    expected, late = windows_of(runs)
    assert late > 0
    assert len(expected) > 8
    assert sorted(pipeline.rows) == sorted((*key, number) for key, number in expected.items())


@pytest.mark.proves("spark", "Two streams are joined across a restart as pandas joins them")
@pytest.mark.slow
def test_orders_are_joined_with_the_payments_of_a_later_run(
    spark: SparkSession, tmp_path: Path, rng: random.Random
) -> None:
    orders = [(f"o-{n}", BEGIN_MS + rng.randrange(600_000)) for n in range(120)]
    payments = [
        (order_id, born_ms + rng.randrange(-60_000, 300_000), rng.randrange(1000))
        for order_id, born_ms in rng.choices(orders, k=150)
    ]
    with Shards(tmp_path / "data", Orders=1, Payments=1) as shards:

        def query() -> DataFrame:
            schema = "body binary, keys string, bornTimestamp timestamp"
            ordered = stream(spark, shards, "Orders", schema)
            paid = stream(spark, shards, "Payments", schema)
            amount = from_json(col("body").cast("string"), "amount long")["amount"]
            paid = paid.select(
                col("keys").alias("paid_id"),
                amount.alias("amount"),
                col("bornTimestamp").alias("paid_at"),
            )
            ordered = ordered.withWatermark("bornTimestamp", "1 hour")
            paid = paid.withWatermark("paid_at", "1 hour")
            soon = "paid_at >= bornTimestamp AND paid_at < bornTimestamp + interval 2 minutes"
            joined = ordered.join(paid, expr(f"keys = paid_id AND {soon}"))
            return joined.select("keys", "amount")

        pipeline = Pipeline(query, tmp_path)
        for part in range(2):
            for order_id, born_ms in orders[part::2]:
                sent = Message("Orders", b"", keys=(order_id,), born_timestamp_ms=born_ms)
                shards.append([sent], 0)
            for order_id, born_ms, cents in payments[1 - part :: 2]:
                body = json.dumps({"amount": cents}).encode()
                shards.append(
                    [Message("Payments", body, keys=(order_id,), born_timestamp_ms=born_ms)], 0
                )
            pipeline.run()

    left = pd.DataFrame(orders, columns=["id", "ordered"])
    right = pd.DataFrame(payments, columns=["id", "paid", "amount"])
    both = left.merge(right, on="id")
    both = both[(both.paid >= both.ordered) & (both.paid < both.ordered + 120_000)]
    expected = sorted(both[["id", "amount"]].itertuples(index=False, name=None))
    assert len(expected) > 20
    assert sorted(pipeline.rows) == expected
