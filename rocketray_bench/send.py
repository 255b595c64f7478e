"""How many messages a second does one producer get acknowledged, by way of sending and durability?

Messages are created as in users' code: inside the clock, each a new object with a body of 100
bytes, a tag, a key and two properties. The first number of a row is for a topic of four queues,
which the producer uses in turn, the other for a topic of one.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

from rocketray.actors.client.connection import Connection
from rocketray.base.ack_mode import AckMode, durability_of
from rocketray.base.quantity import counted
from rocketray.message import Message
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.producer_options import ManyOptions

from .bench_node import bench_node
from .orders import order_body, order_options, order_table
from .report import BenchOptions, Row

_QUEUES = (4, 1)
_RECORD_BYTES = 260  # a record of this benchmark: key, two properties and unique key

Work = Callable[[NodeProducer, str, int], None]
"""Sends a number of messages to a topic; returns when all are acknowledged."""


def run(options: BenchOptions) -> list[Row]:
    """Send through shared memory, to four queues and to one."""
    copy = options.ceilings.copy(_RECORD_BYTES)
    with bench_node() as connection:
        for queues in _QUEUES:
            connection.topics.create(f"Bench{queues}", queues)
        bench = _Bench(options, connection)
        return [
            *bench.latencies("memory", 20_000),
            *bench.latencies("disk", 2_000),
            *bench.rates("unbatched calls, acks awaited later", 200_000, _unbatched, copy),
            *bench.rates("lists of 32, each acknowledged", 200_000, _lists(32), copy),
            *bench.rates("lists of 1024, each acknowledged", 400_000, _lists(1024), copy),
            *bench.rates("columns of 32, each acknowledged", 400_000, _columns(32), copy),
            *bench.rates("columns of 1024, each acknowledged", 2_000_000, _columns(1024), copy),
            *bench.rates(
                "columns of 1024, one stored while the next is made", 2_000_000, _overlapping, copy
            ),
            *_arrow(options, connection, copy),
        ]


class _Bench:
    def __init__(self, options: BenchOptions, connection: Connection) -> None:
        self._options = options
        self._connection = connection

    def rates(
        self, question: str, full: int, work: Work, ceiling: str, ack: AckMode = "memory"
    ) -> Iterator[Row]:
        count = self._options.amount(full)
        for queues in _QUEUES:
            topic = f"Bench{queues}"
            with self._connection.producer(ack=ack) as producer:
                work(producer, topic, max(1, count // 10))  # rings, files and the first look-up
                rate = self._options.median_rate(count, partial(work, producer, topic, count))
            yield Row(f"send, {question}; {counted(queues, 'queue')}", rate, "messages/s", ceiling)

    def latencies(self, ack: AckMode, full: int) -> Iterator[Row]:
        """Send one message at a time; yield the rate, and the median of one send."""
        ceilings = self._options.ceilings
        ceiling = ceilings.sync() if durability_of(ack).needs_sync else ceilings.wake()
        took: list[float] = []

        def work(producer: NodeProducer, topic: str, count: int) -> None:
            for number in range(count):
                begun = time.perf_counter()
                producer.send(topic, order_body(number), **order_options(number))
                took.append(time.perf_counter() - begun)

        for row in self.rates(f"one at a time, acked (ack={ack})", full, work, ceiling, ack):
            yield row
            yield Row(f"{row.question}, p50", statistics.median(took) * 1e6, "µs", ceiling)
            took.clear()


def _unbatched(producer: NodeProducer, topic: str, count: int) -> None:
    sends = [
        producer.send_async(topic, order_body(number), **order_options(number))
        for number in range(count)
    ]
    for send in sends:
        send.result()


def _lists(size: int) -> Work:
    def work(producer: NodeProducer, topic: str, count: int) -> None:
        messages = (
            Message(topic, order_body(number), **order_options(number)) for number in range(count)
        )
        while batch := list(itertools.islice(messages, size)):
            producer.send_many(topic, batch)

    return work


def _column_options(first: int, size: int) -> ManyOptions:
    """Return messages as lists of their parts, which are made within the clock, too."""
    numbers = range(first, first + size)
    return {
        "bodies": [order_body(number) for number in numbers],
        "tags": "pay",
        "keys": [f"order-{number}" for number in numbers],
        "properties": {"region": "eu", "amount": [str(number % 1000) for number in numbers]},
    }


def _columns(size: int) -> Work:
    def work(producer: NodeProducer, topic: str, count: int) -> None:
        for first in range(0, count, size):
            producer.send_many(topic, **_column_options(first, min(size, count - first)))

    return work


def _overlapping(producer: NodeProducer, topic: str, count: int) -> None:
    size, before = 1024, None
    for first in range(0, count, size):
        sending = producer.begin_many(topic, **_column_options(first, min(size, count - first)))
        if before is not None:
            before.result()
        before = sending
    if before is not None:
        before.result()


def _arrow(options: BenchOptions, connection: Connection, ceiling: str) -> Iterator[Row]:
    """Send tables of columns, created before the clock starts, as an application has them."""
    table = order_table(options.amount(1_000_000))
    for queues in _QUEUES:
        with connection.producer() as producer:
            work = partial(
                producer.send_many, f"Bench{queues}", table, property_columns=["a", "region"]
            )
            begun = time.perf_counter()
            work()
            first = table.num_rows / (time.perf_counter() - begun)
            rate = options.median_rate(table.num_rows, work)
        yield Row(
            f"send_many, Arrow tables without keys; {counted(queues, 'queue')} "
            f"(the first, in fresh memory: {first / 1e6:.2f} M/s)",
            rate,
            "messages/s",
            ceiling,
        )
