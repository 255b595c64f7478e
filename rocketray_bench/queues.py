"""What do 1 to 256 queues of a topic cost, and how fast are they?

For each number a node of its own: a producer sends tables to all queues in turn, and a member of a
group gets every message. Then the node is idle. The costs are those of the node's processes,
without this one: processor time, which other programs on the machine change little, and memory.
"""

from __future__ import annotations

import threading
import time
from functools import partial

from rocketray.actors.client.connection import Connection
from rocketray.filters.subscription import Subscription

from .bench_node import bench_node, idle_use, node_memory_bytes, node_processor_s
from .orders import order_table
from .report import BenchOptions, Row, counted

__all__ = ["run"]

_QUEUES = (1, 4, 16, 64, 256)
_QUICK_QUEUES = (1, 16)
_ROWS = 4096  # a table; with 256 queues a batch of it has 16 messages
_RECORD_BYTES = 260
_IDLE_S = 60
_SETTLE_S = 3.0
_LOOK_S = 0.0005
_MIB = 1024 * 1024


def run(options: BenchOptions) -> list[Row]:
    """Measure for some ten minutes."""
    numbers = _QUICK_QUEUES if options.quick else _QUEUES
    return [row for queues in numbers for row in _measure(options, queues)]


def _measure(options: BenchOptions, queues: int) -> list[Row]:
    copy = options.ceilings.copy(_RECORD_BYTES)
    with bench_node() as connection:
        empty_bytes = node_memory_bytes()
        connection.topics.create("Bench", queues)
        rate, used_us = _rate(options, connection)
        share, used_bytes = idle_use(options.amount(_IDLE_S), _SETTLE_S)
    of = counted(queues, "queue")
    return [
        Row(f"{of}: sent and consumed", rate, "messages/s", copy),
        Row(f"{of}: processor a message", used_us, "µs", copy),
        Row(f"{of}: idle node, processor", share * 100, "% of a core", "0"),
        Row(f"{of}: memory a queue", (used_bytes - empty_bytes) / _MIB / queues, "MiB", "0"),
    ]


def _rate(options: BenchOptions, connection: Connection) -> tuple[float, float]:
    """Return the messages a second, and the processor time of the node's processes for each."""
    tables = options.amount(100)
    table = order_table(_ROWS)
    total = tables * _ROWS
    sent = got = 0
    stop = threading.Event()

    def consume() -> None:
        nonlocal got
        with connection.consumer("bench", "Bench", Subscription.tags("*")) as member:
            while not stop.is_set():
                for batch in member.poll(0.2):
                    got += len(batch)
                    member.commit("Bench", batch.queue_id, batch.next_queue_offset)

    def work(count: int) -> None:
        nonlocal sent
        for _ in range(count):
            producer.send_many("Bench", table, property_columns=["a", "region"])
        sent += count * _ROWS
        while got < sent:
            time.sleep(_LOOK_S)

    member = threading.Thread(target=consume)
    member.start()
    try:
        with connection.producer() as producer:
            work(1)  # rings, files and the first look-ups
            before = node_processor_s()
            rate = options.median_rate(total, partial(work, tables))
            used_s = node_processor_s() - before
    finally:
        stop.set()
        member.join()
    return rate, used_s / (options.runs * total) * 1e6
