"""How many rows a second can the tasks of a Spark write store, without Spark?

Two processes stage rows as tasks do, of Arrow batches as Spark hands them over. Then they are
decided (exactly once), or each task publishes its own (at least once). Beside these, two processes
send the same tables with a producer. The three take turns, and each ends with all rows on disk.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
import uuid
from collections.abc import Callable
from functools import lru_cache
from multiprocessing.pool import Pool
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from rocketray.actors.client.connection import Connection
from rocketray.broker.fetching.read_plan import DiskPlace
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.fragment_file import BatchName, Fragment
from rocketray.services.staging.message_rows import MessageRows
from rocketray.services.staging.staging_api import StagedBatch
from rocketray.services.staging.staging_client import StagingClient
from rocketray_bench.bench_node import bench_node, node_processor_s
from rocketray_bench.report import BenchOptions, Row

_TOPIC, _QUEUES, _TASKS = "Bench", 4, 2
_BATCH_ROWS = 10_000  # Spark's spark.sql.execution.arrow.maxRecordsPerBatch
_TIMEOUT_S = 120.0


class _Work(NamedTuple):
    """The rows of one task, and where they go."""

    place: DiskPlace
    data: Path
    task: int
    rows: int
    writer: str


def run(options: BenchOptions) -> list[Row]:
    """Store the rows in the three ways, in turns."""
    each = options.amount(1_000_000) // _TASKS
    context = multiprocessing.get_context("spawn")
    with bench_node() as connection, context.Pool(_TASKS) as pool:
        connection.topics.create(_TOPIC, _QUEUES)
        place = connection.ranges.look([]).place
        client = StagingClient(place)
        ways: dict[str, Callable[[list[_Work]], None]] = {
            "a producer's tables, ack=disk": lambda work: _each(pool, _send, work),
            "staged and published: at least once": lambda work: _each(pool, _publish, work),
            "staged and decided: exactly once": lambda work: _decide(pool, client, work),
        }
        for begin in ways.values():  # warm
            begin(_works(place, connection, _BATCH_ROWS))
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(options.runs):
            for name, begin in ways.items():
                used, begun = node_processor_s(), time.perf_counter()
                begin(_works(place, connection, each))
                took[name].append((time.perf_counter() - begun, node_processor_s() - used))
    rows, first = [], 0.0
    for name, turns in took.items():
        wall_s, processor_s = (statistics.median(values) for values in zip(*turns, strict=True))
        rate = _TASKS * each / wall_s
        first = first or rate
        ratio = f"{rate / first:.2f} of a producer's tables"
        rows.append(
            Row(f"two tasks, {_QUEUES} queues, bodies of 100 bytes: {name}", rate, "rows/s", ratio)
        )
        used_us = 1e6 * processor_s / (_TASKS * each)
        rows.append(Row(f"processor time of that: {name}", used_us, "µs/row", "of all processes"))
    return rows


def _works(place: DiskPlace, connection: Connection, rows: int) -> list[_Work]:
    writer = uuid.uuid4().hex
    return [_Work(place, connection.data, task, rows, writer) for task in range(_TASKS)]


def _each(pool: Pool, run: Callable[[_Work], object], work: list[_Work]) -> None:
    pool.map(run, work, chunksize=1)


def _decide(pool: Pool, client: StagingClient, work: list[_Work]) -> None:
    fragments = tuple(pool.map(_stage, work, chunksize=1))
    name = BatchName(work[0].writer, 0)
    client.calls.decide(StagedBatch(name, "run", fragments, is_single=True))
    assert client.wait_applied(name, _TIMEOUT_S)


def _publish(work: _Work) -> None:
    work = work._replace(writer=f"{work.writer}-{work.task}")
    fragment, client, name = _stage(work), StagingClient(work.place), BatchName(work.writer, 0)
    client.calls.publish(name, [fragment])
    assert client.wait_applied(name, _TIMEOUT_S)


def _stage(work: _Work) -> Fragment:
    client = StagingClient(work.place)
    fragment = client.new_fragment(BatchName(work.writer, 0))
    rows = MessageRows(client.queues_of, _TOPIC, first_queue=work.task, clock_ms=system_clock_ms)
    table = _table()
    for _ in range(work.rows // _BATCH_ROWS):
        for frame in rows.frames(table):
            fragment.add(frame.topic, frame.queue_id, frame.content, frame.messages)
    return fragment.finish()


def _send(work: _Work) -> None:
    producer, table = _producer(work.data), _table()
    for _ in range(work.rows // _BATCH_ROWS):
        producer.send_many(_TOPIC, table)


@lru_cache(maxsize=1)
def _producer(data: Path) -> NodeProducer:
    """Return the producer of this process, which keeps it."""
    return Connection.open(data).producer(ack="disk")


def _table() -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": [b"x" * 100] * _BATCH_ROWS})
