"""The Spark source beside Spark's Kafka source, on the same messages, in turns in one session.

    PYTHONPATH=tests python benchmarks/kafka.py [--quick] [--plain] [--rows 1000000] [--output FILE]

Kafka's broker and the jars of its source come from Maven. The messages are stored in a topic of
rocketray and, by Spark, in one of Kafka with as many partitions: a body of 100 bytes, a tag (one
message in a hundred is "rare"), a key and two properties. For Kafka the tag is the key, by which
Spark filters fastest, and the properties are headers. What is read goes to Spark's noop sink.

``--plain`` measures in a session without the settings of ``spark_session``. The broker uses a part
of the processor while Kafka is read; the node of rocketray has ended, as reading needs none.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from support.rocketmq.kafka import KafkaBroker, source_jars

from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.queries.spark.session import spark_session

TOPIC, QUEUES = "Trade", 4
_SEND_ROWS = 100_000
_MICRO_ROWS, _MICRO_BATCHES = 2000, 12
_OURS, _KAFKA, _RATE, _RATIO = "rocketray", "Kafka", "rate", "ratio"
_LEAN = "body binary, queueOffset bigint"


class Sources:
    """The same messages in both systems, as frames of one session."""

    def __init__(self, session: SparkSession, data: Path, address: str) -> None:
        self.session = session
        self._options: Mapping[str, dict[str, str]] = {
            _OURS: {"topic": TOPIC, "data": str(data)},
            _KAFKA: {"subscribe": TOPIC, "kafka.bootstrap.servers": address},
        }

    def frame(
        self, system: str, columns: str = "lean", *, stream: bool = False, **more: str
    ) -> DataFrame:
        """Return the topic with some columns."""
        reader: Any = self.session.readStream if stream else self.session.read
        given = {**self._options[system], "startingOffsets": "earliest", **more}
        reader = reader.format(system.lower()).options(**given)
        if system == _OURS:
            reader = reader.schema(_LEAN) if columns == "lean" else reader
        else:
            reader = reader.option("includeHeaders", str(columns == "all"))
        frame: DataFrame = reader.load()
        is_cut = system == _KAFKA and columns == "lean"
        return frame.select("value", "offset") if is_cut else frame

    def rare(self, system: str) -> DataFrame:
        """Return one message in a hundred, as each system finds it fastest."""
        if system == _OURS:
            return self.frame(system, tags="rare")
        reader = self.session.read.format("kafka").options(**self._options[system])
        return reader.load().where("key = cast('rare' AS binary)").select("value", "offset")

    def rate(self) -> DataFrame:
        """Return Spark's own source of numbers, with micro-batches of the same size."""
        reader = self.session.readStream.format("rate-micro-batch")
        return reader.option("rowsPerBatch", str(_MICRO_ROWS)).load()


def fill(data: Path, rows: int) -> None:
    """Send the messages to a topic of a node, which then ends."""
    body = bytes(range(100))
    with Node(data, NodeOptions(num_cpus=2)) as node, node.connection() as connection:
        connection.topics.create(TOPIC, QUEUES)
        with connection.producer() as producer:
            for first in range(0, rows, _SEND_ROWS):
                numbers = np.arange(first, min(rows, first + _SEND_ROWS))
                tags = np.where(numbers % 100 == 0, "rare", "usual")
                table = {
                    "body": pa.array([body] * len(numbers), pa.binary()),
                    "tags": pa.array(tags, pa.string()),
                    "keys": pa.array(map(str, numbers), pa.string()),
                    "amount": pa.array(map(str, numbers % 1000), pa.string()),
                    "region": pa.array(np.where(numbers % 2, "eu", "us"), pa.string()),
                }
                producer.send_many(TOPIC, pa.table(table), property_columns=["amount", "region"])


def copy(sources: Sources, address: str) -> None:
    """Write the topic into Kafka, partition by partition."""
    headers = (
        "transform(map_entries(properties), e -> struct(e.key, cast(e.value AS binary) value))"
    )
    rows = sources.frame(_OURS, "all").selectExpr(
        "body AS value",
        "cast(tags AS binary) AS key",
        "queueId AS partition",
        f"{headers} AS headers",
    )
    writer = rows.write.format("kafka").option("topic", TOPIC)
    writer.option("kafka.bootstrap.servers", address).option("includeHeaders", "true").save()


def batch_s(frame: DataFrame) -> float:
    """Return how long a batch takes."""
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


def stream_s(frame: DataFrame) -> float:
    """Return how long a stream takes to read what is available, with its start and its end."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        begin = time.perf_counter()
        writer.trigger(availableNow=True).start().awaitTermination()
        return time.perf_counter() - begin


def trigger_ms(frame: DataFrame) -> float:
    """Return the median time of the micro-batches of a stream, without the first two."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="0 seconds").start()
        while len(query.recentProgress) < _MICRO_BATCHES:
            time.sleep(0.05)
        times = [one["durationMs"]["triggerExecution"] for one in query.recentProgress]
        query.stop()
    return float(statistics.median(times[2:]))


@dataclass(frozen=True)
class Case:
    """A question, and how each system is measured; the *unit* says whether more is better."""

    question: str
    unit: str
    systems: tuple[str, ...]
    value: Callable[[str], float]


def cases(sources: Sources, rows: int) -> list[Case]:
    """Return what is measured."""
    both = (_OURS, _KAFKA)
    ends = sources.frame(_OURS, "all").groupBy("queueId").max("queueOffset").collect()
    last = {str(queue): end + 1 - _MICRO_ROWS // QUEUES for queue, end in ends}
    few = {"startingOffsets": json.dumps({TOPIC: last})}
    limit = {"maxOffsetsPerTrigger": str(_MICRO_ROWS)}

    def micro_batch(system: str) -> float:
        rate, frame = system == _RATE, sources.frame
        return trigger_ms(sources.rate() if rate else frame(system, stream=True, **limit))

    def per_s(seconds: float) -> float:
        return rows / seconds / 1000

    def batch(columns: str) -> Callable[[str], float]:
        return lambda system: per_s(batch_s(sources.frame(system, columns)))

    def available(columns: str) -> Callable[[str], float]:
        return lambda system: per_s(stream_s(sources.frame(system, columns, stream=True)))

    return [
        Case("batch, all columns", "k rows/s", both, batch("all")),
        Case("batch, body and offset", "k rows/s", both, batch("lean")),
        Case("batch, 1 % match", "k rows/s", both, lambda one: per_s(batch_s(sources.rare(one)))),
        Case("availableNow, all columns", "k rows/s", both, available("all")),
        Case("availableNow, body and offset", "k rows/s", both, available("lean")),
        Case("micro-batch of 2,000 rows", "ms", (*both, _RATE), micro_batch),
        Case(
            "stream of 2,000 rows, from start to end",
            "ms",
            both,
            lambda one: 1000 * stream_s(sources.frame(one, stream=True, **few)),
        ),
    ]


def compare(sources: Sources, rows: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Measure each case in turns, after a turn that warms up; yield its medians.

    The ratio is the median of the ratios of adjacent turns.
    """
    for case in cases(sources, rows):
        values: dict[str, list[float]] = {system: [] for system in case.systems}
        for turn in range(rounds + 1):
            for system in case.systems:
                value = case.value(system)
                if turn:
                    values[system].append(value)
        yield {
            "question": case.question,
            "unit": case.unit,
            **{system: statistics.median(found) for system, found in values.items()},
            _RATIO: statistics.median(map(operator.truediv, values[_OURS], values[_KAFKA])),
            "values": values,
        }


@contextmanager
def opened(*, is_plain: bool) -> Iterator[SparkSession]:
    """Start a session with Kafka's source, which ends with the block."""
    jars = ",".join(map(str, source_jars()))
    if is_plain:
        builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
        session = (
            builder.config("spark.ui.enabled", "false").config("spark.jars", jars).getOrCreate()
        )
    else:
        session = spark_session("kafka", memory="2g", settings={"spark.jars": jars})
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def main() -> None:
    """Measure, print the table, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run; its figures say little")
    parser.add_argument("--plain", action="store_true", help="a session with Spark's own settings")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows, rounds = (50_000, 1) if arguments.quick else (arguments.rows, arguments.rounds)
    results = []
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        work = Path(directory)
        fill(work / "data", rows)
        broker = stack.enter_context(KafkaBroker(work / "kafka", QUEUES))
        session = stack.enter_context(opened(is_plain=arguments.plain))
        sources = Sources(session, work / "data", broker.address)
        copy(sources, broker.address)
        assert sources.frame(_KAFKA).count() == sources.frame(_OURS).count() == rows
        print(f"{'':50} {_RATIO:>6} {_OURS:>10} {_KAFKA:>10} {_RATE:>10}", flush=True)
        for row in compare(sources, rows, rounds):
            shown = (f"{row[one]:10,.0f}" if one in row else "" for one in (_OURS, _KAFKA, _RATE))
            begin = f"{row['question']:40} {row['unit']:>9} {row[_RATIO]:6.2f}"
            print(begin, *shown, flush=True)
            results.append(row)
    print(f"{rows:,} rows, {rounds} rounds; load average {load:.1f}, then {os.getloadavg()[0]:.1f}")
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
