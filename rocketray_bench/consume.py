"""How fast is a backlog read: by an app's agent, and by a plain member, whole and filtered?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import faust
import orjson
import pyarrow as pa

from rocketray.actors.client.connection import Connection
from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.filters.subscription import Subscription

from .agents import Handler, each_value, read_backlog, whole_batches
from .bench_node import bench_node, read_queues, touch_arrow, touch_bodies
from .orders import order_table
from .report import BenchOptions, Row

_RECORD_BYTES = 210
_ENTRY_BYTES = 20
_SQL = "a BETWEEN 10 AND 20 AND region IN ('eu','us')"


class Order(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    """The bodies of topic Orders, 100 bytes of JSON."""

    order_id: str
    kind: str
    region: str
    amount: float
    note: str


_AGENTS: list[tuple[str, str, Handler, dict[str, Any]]] = [
    ("raw bytes", "Bench", each_value, {"value_serializer": "raw"}),
    ("JSON", "Orders", each_value, {"value_serializer": "json"}),
    ("Records", "Orders", each_value, {"value_type": Order}),
    ("Arrow batches", "Bench", whole_batches, {"value_serializer": "raw"}),
]


def run(options: BenchOptions) -> list[Row]:
    """Read one queue with offsets committed; every run is a new group."""
    rows = {"Bench": options.amount(1_000_000), "Orders": options.amount(300_000)}
    by_entry, by_record = map(options.ceilings.read, (_ENTRY_BYTES, _RECORD_BYTES))
    with bench_node() as connection:
        for topic in rows:
            connection.topics.create(topic, 1)
        with connection.producer() as producer:
            table = order_table(rows["Bench"])
            producer.send_many("Bench", table, property_columns=["a", "region"])
            producer.send_many("Orders", _json_orders(rows["Orders"]))
        return [
            *_agents(connection, options, by_record, rows),
            *_members(connection, options, (by_entry, by_record), rows["Bench"]),
        ]


def _json_orders(count: int) -> pa.Table:
    """Return messages of 100 bytes each."""
    order = {"kind": "pay", "region": "eu", "note": "a bench's order"}
    bodies = [
        orjson.dumps({"order_id": f"{number:08}", "amount": number % 1000 + 1000.5, **order})
        for number in range(count)
    ]
    return pa.table({"body": pa.array(bodies, pa.binary())})


def _agents(
    connection: Connection, options: BenchOptions, ceiling: str, rows: dict[str, int]
) -> Iterator[Row]:
    """Read through an app, with all that an agent has by default: see agents.py."""
    for values, topic, handler, topic_options in _AGENTS:
        count = rows[topic]
        paces = [
            read_backlog(connection, topic, count, handler, **topic_options)
            for _ in range(options.runs)
        ]
        yield Row(
            f"an agent reads a backlog: {values}",
            count / statistics.median(pace.wall_s for pace in paces),
            "messages/s",
            ceiling,
        )
        yield Row(
            f"processor time of that: {values}",
            1e6 * statistics.median(pace.processor_s for pace in paces) / count,
            "µs/message",
            "of the agent's process",
        )


def _members(
    connection: Connection, options: BenchOptions, ceilings: tuple[str, str], rows: int
) -> Iterator[Row]:
    by_entry, by_record = ceilings
    everything = Subscription.tags("*")
    for question, subscription, handle, unit, ceiling in (
        ("reads a backlog: each body", everything, touch_bodies, "messages/s", by_record),
        ("reads a backlog: Arrow batches", everything, touch_arrow, "messages/s", by_record),
        ("gets 1 % by tag", Subscription.tags("rare"), touch_bodies, "entries/s", by_entry),
        (f"filters by {_SQL}", Subscription.sql(_SQL), touch_bodies, "entries/s", by_record),
    ):
        read = partial(_read, connection, subscription, handle, rows)
        rate = rows / statistics.median(read() for _ in range(options.runs))
        yield Row(f"a plain member {question}", rate, unit, ceiling)


def _read(
    connection: Connection,
    subscription: Subscription,
    handle: Callable[[ConsumedBatch], None],
    rows: int,
) -> float:
    """Return the seconds from joining a new group until the whole queue was scanned and handled."""
    begun = time.perf_counter()
    with connection.consumer(f"bench-{time.monotonic_ns()}", "Bench", subscription) as member:
        read_queues({member: {0: rows}}, handle)
        return time.perf_counter() - begun
