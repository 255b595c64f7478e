"""How fast does one group member read a backlog, whole, one in a hundred by tag, and by SQL92?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from rocketray.actors.client import Connection
from rocketray.actors.consumed_batch import ConsumedBatch
from rocketray.filters.subscription import Subscription

from .ceilings import measure
from .node import bench_node, order_table
from .report import BenchOptions, Row

__all__ = ["run"]

_RECORD_BYTES = 210
_ENTRY_BYTES = 20
_SQL = "a BETWEEN 10 AND 20 AND region IN ('eu','us')"
_TIMEOUT_S = 120.0


def run(options: BenchOptions) -> list[Row]:
    """Read one queue with offsets committed; every run is a new group."""
    ceilings = measure()
    rows = options.amount(1_000_000)
    with bench_node() as connection:
        connection.create_topic("Bench", 1)
        with connection.producer() as producer:
            producer.send_many("Bench", order_table(rows), property_columns=["a", "region"])

        def rate(subscription: Subscription, handle: Callable[[ConsumedBatch], None]) -> float:
            times = [
                _read(connection, f"bench-{time.monotonic_ns()}", subscription, handle, rows)
                for _ in range(options.runs)
            ]
            return rows / statistics.median(times)

        everything = Subscription.tags("*")
        by_entry, by_record = ceilings.read(_ENTRY_BYTES), ceilings.read(_RECORD_BYTES)
        return [
            Row(
                "consume a backlog, each body in a Python loop",
                rate(everything, _touch_bodies),
                "messages/s",
                by_record,
            ),
            Row(
                "consume a backlog as Arrow batches",
                rate(everything, _touch_arrow),
                "messages/s",
                by_record,
            ),
            Row(
                "tag filter, 1 % match, end to end",
                rate(Subscription.tags("rare"), _touch_bodies),
                "entries/s",
                by_entry,
            ),
            Row(
                f"SQL92 {_SQL}, end to end",
                rate(Subscription.sql(_SQL), _touch_bodies),
                "entries/s",
                by_record,
            ),
        ]


def _touch_bodies(batch: ConsumedBatch) -> None:
    for body in batch.bodies():
        len(body)


def _touch_arrow(batch: ConsumedBatch) -> None:
    batch.to_arrow(["body", "queueOffset"])


def _read(
    connection: Connection,
    group: str,
    subscription: Subscription,
    handle: Callable[[ConsumedBatch], None],
    rows: int,
) -> float:
    """Seconds from joining the group until the whole queue was scanned and handled."""
    begun = time.perf_counter()
    with connection.consumer(group, "Bench", subscription) as member:
        reached = 0
        while reached < rows:
            for batch in member.poll(0.05, 8192):
                handle(batch)
                reached = batch.next_queue_offset
                member.commit(batch.topic, batch.queue_id, reached)
            if time.perf_counter() - begun > _TIMEOUT_S:
                raise TimeoutError(f"{reached} of {rows} entries after {_TIMEOUT_S} s")
        return time.perf_counter() - begun
