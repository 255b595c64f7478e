"""How fast does a member on another machine read a backlog, and how late does it get a message?

The member is on this machine, and fetches as if it was on another one: over loopback, without TLS.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from rocketray.actors.client.connection import Connection
from rocketray.broker.fetching.flight_link import FlightLink
from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.filters.subscription import Subscription
from rocketray.groups.member_options import FetchCompression
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.remote.fetch_api import FETCHES
from rocketray.messaging.remote.fetched_streams import FetchedStreams
from rocketray.runtime.calls.endpoint import client_of
from rocketray_bench.bench_node import (
    bench_node,
    node_processor_s,
    read_queues,
    touch_arrow,
    touch_bodies,
)
from rocketray_bench.latency import member_times
from rocketray_bench.orders import order_table
from rocketray_bench.report import BenchOptions, Row

_RECORD_BYTES = 210
_QUEUES = 4
_EACH_S = 0.01
_FORMATS: list[tuple[str, Callable[[ConsumedBatch], None], FetchCompression | None]] = [
    ("each body", touch_bodies, None),
    ("Arrow batches", touch_arrow, None),
    ("Arrow batches, lz4", touch_arrow, "lz4"),
    ("Arrow batches, zstd", touch_arrow, "zstd"),
]


def run(options: BenchOptions) -> list[Row]:
    """Read four queues with offsets committed; every run is a new group."""
    each = options.amount(1_000_000) // _QUEUES
    count, ceiling = options.amount(2_000), options.ceilings.wake()
    with bench_node() as connection:
        connection.topics.create("Bench", _QUEUES)
        connection.topics.create("Slow", _QUEUES)
        with connection.producer() as producer:
            for queue_id in range(_QUEUES):
                producer.send_many(
                    "Bench",
                    order_table(each),
                    property_columns=["a", "region"],
                    queue_id=queue_id,
                )
        rows = [*_backlog(connection, options, each)]
        times = member_times(connection, "Slow", count, partial(_join, connection), _EACH_S)
    return rows + [
        Row(
            f"publish to a member on another machine at {1 / _EACH_S:.0f}/s, p{percentile}",
            float(np.percentile(times, percentile)) / 1e6,
            "ms",
            ceiling,
        )
        for percentile in (50, 99)
    ]


def _backlog(connection: Connection, options: BenchOptions, each: int) -> Iterator[Row]:
    ceiling = options.ceilings.read(_RECORD_BYTES)
    for what, handle, compression in _FORMATS:
        paces = [_read(connection, handle, compression, each) for _ in range(options.runs)]
        wall_s, processor_s = (statistics.median(times) for times in zip(*paces, strict=True))
        yield Row(
            f"a member on another machine reads a backlog: {what}",
            _QUEUES * each / wall_s,
            "messages/s",
            ceiling,
        )
        yield Row(
            f"processor time of that: {what}",
            1e6 * processor_s / (_QUEUES * each),
            "µs/message",
            "of the member's process and of the node's",
        )


def _join(
    connection: Connection, topic: str, compression: FetchCompression | None = None
) -> GroupConsumer:
    """Return a member of a new group that maps nothing."""
    group = f"bench-{time.monotonic_ns()}"
    fetches = client_of(FlightLink(connection.service, compression), FETCHES)
    streams = FetchedStreams(fetches, group, topic)
    return GroupConsumer(connection, group, topic, Subscription.tags("*"), streams=streams)


def _read(
    connection: Connection,
    handle: Callable[[ConsumedBatch], None],
    compression: FetchCompression | None,
    each: int,
) -> tuple[float, float]:
    """Return the seconds, and the processor seconds, until all was handled."""
    begun, used = time.perf_counter(), time.process_time() + node_processor_s()
    with _join(connection, "Bench", compression) as member:
        read_queues({member: dict.fromkeys(range(_QUEUES), each)}, handle)
        wall_s = time.perf_counter() - begun
        return wall_s, time.process_time() + node_processor_s() - used
