"""How many messages a second does one producer get acknowledged, by batch and by durability?"""

from __future__ import annotations

import time

from rocketray.actors.client import Connection
from rocketray.actors.producer import Producer
from rocketray.message import Message

from .ceilings import Ceilings, measure
from .node import BODY_BYTES, bench_node, order_table
from .report import BenchOptions, Row, median_rate

__all__ = ["run"]

_BODY = bytes(BODY_BYTES)
_RECORD_BYTES = 190  # a record of this benchmark, with its unique key


def run(options: BenchOptions) -> list[Row]:
    """Send through shared memory to one queue."""
    ceilings = measure()
    with bench_node() as connection:
        connection.create_topic("Bench", 1)
        return [
            _single(options, connection, ceilings, "memory", options.amount(20_000)),
            _single(options, connection, ceilings, "disk", options.amount(2_000)),
            _unbatched(options, connection, ceilings),
            *(_batches(options, connection, ceilings, size) for size in (32, 1024)),
            _arrow(options, connection, ceilings),
        ]


def _single(
    options: BenchOptions, connection: Connection, ceilings: Ceilings, ack: str, count: int
) -> Row:
    with connection.producer(ack="disk" if ack == "disk" else "memory") as producer:

        def work() -> None:
            for _ in range(count):
                producer.send("Bench", _BODY, tags="pay")

        rate = median_rate(options, count, work)
    ceiling = ceilings.sync() if ack == "disk" else ceilings.wake()
    return Row(f"send, one at a time, each acknowledged (ack={ack})", rate, "messages/s", ceiling)


def _unbatched(options: BenchOptions, connection: Connection, ceilings: Ceilings) -> Row:
    count = options.amount(200_000)
    with connection.producer() as producer:

        def work() -> None:
            sends = [producer.send_async("Bench", _BODY, tags="pay") for _ in range(count)]
            for send in sends:
                send.result()

        rate = median_rate(options, count, work)
    return Row(
        "send, unbatched calls, acks awaited later",
        rate,
        "messages/s",
        ceilings.copy(_RECORD_BYTES),
    )


def _batches(options: BenchOptions, connection: Connection, ceilings: Ceilings, size: int) -> Row:
    """Messages are made beforehand, as an application has them."""
    count = options.amount(200_000) // size * size
    messages = [Message("Bench", _BODY, "pay")] * size
    with connection.producer() as producer:

        def work() -> None:
            for _ in range(count // size):
                producer.send_messages("Bench", messages)

        rate = median_rate(options, count, work)
    return Row(
        f"send, batches of {size}, each acknowledged",
        rate,
        "messages/s",
        ceilings.copy(_RECORD_BYTES),
    )


def _arrow(options: BenchOptions, connection: Connection, ceilings: Ceilings) -> Row:
    table = order_table(options.amount(1_000_000))

    def work(producer: Producer) -> None:
        producer.send_many("Bench", table, property_columns=["a", "region"])

    with connection.producer() as producer:
        begun = time.perf_counter()
        work(producer)
        first_s = time.perf_counter() - begun
        rate = median_rate(options, table.num_rows, lambda: work(producer))
    return Row(
        f"send_many, Arrow table (first run, fresh memory: {table.num_rows / first_s / 1e6:.2f} M/s)",
        rate,
        "messages/s",
        ceilings.copy(_RECORD_BYTES),
    )
