"""What do 1 to 10,000 queues cost, and how fast are they?

For each number a node of its own, with topics of at most four queues. Each queue gets a message,
whose time is that until it is acknowledged. Then the node is idle. Then a producer sends tables to
all topics in turn. At last the shard processes are killed, and the time until all queues answer is
that of their recovery. The costs are those of the node's processes, without this one: processor
time, which other programs on the machine change little, and memory.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial

from rocketray.actors.client.actor_names import find_actor
from rocketray.actors.client.connection import Connection
from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.base.quantity import counted
from rocketray.errors import ShardUnavailableError
from rocketray.runtime.calls.endpoint import process_actor
from rocketray.runtime.ray_process.ray_runtime import ray
from rocketray_bench.bench_node import (
    TIMEOUT_S,
    bench_node,
    idle_use,
    node_memory_bytes,
    node_processor_s,
)
from rocketray_bench.orders import order_table
from rocketray_bench.report import BenchOptions, Row

_QUEUES = (1, 16, 256, 4096, 10_000)
_QUICK_QUEUES = (1, 16)
_QUEUES_A_TOPIC = 4
_ROWS = 256  # a table
_TABLES = 2048
_IDLE_S = 30
_SETTLE_S = 6.0  # until all is flushed, and the shards rest
_LOOK_S = 0.2
_MIB = 1024 * 1024
_NOTHING = "0"


def run(options: BenchOptions) -> list[Row]:
    """Measure for some ten minutes."""
    numbers = _QUICK_QUEUES if options.quick else _QUEUES
    return [row for queues in numbers for row in _measure(options, queues)]


def _measure(options: BenchOptions, queues: int) -> list[Row]:
    each = min(queues, _QUEUES_A_TOPIC)
    topics = [f"Bench{number}" for number in range(queues // each)]
    of = counted(queues, "queue")
    with bench_node() as connection:
        empty_bytes = node_memory_bytes()
        create_s = _timed(lambda: connection.topics.create_many(topics, each))
        first_ms = sorted(_first_messages(connection, topics, each))
        share, used_bytes = idle_use(options.amount(_IDLE_S), _SETTLE_S)
        all_s = _timed(lambda: _look_at_all(connection))
        rate, used_us = _rate(options, connection, topics)
        recover_s = _timed(lambda: _kill_shards(connection, topics))
    return [
        Row(f"{of}: created", create_s, "s", _NOTHING),
        Row(f"{of}: first message of each, p50", first_ms[len(first_ms) // 2], "ms", _NOTHING),
        Row(
            f"{of}: first message of each, p99", first_ms[len(first_ms) * 99 // 100], "ms", _NOTHING
        ),
        Row(f"{of}: idle node, processor", share * 100, "% of a core", _NOTHING),
        Row(f"{of}: idle node, memory added", (used_bytes - empty_bytes) / _MIB, "MiB", _NOTHING),
        Row(f"{of}: topics, problems and what is not on disk", all_s, "s", _NOTHING),
        Row(f"{of}: sent to all in turn", rate, "messages/s", _NOTHING),
        Row(f"{of}: processor a message", used_us, "µs", _NOTHING),
        Row(f"{of}: open after a kill", recover_s, "s", _NOTHING),
    ]


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _first_messages(connection: Connection, topics: list[str], queues: int) -> list[float]:
    """Send a message to each queue; return the time of each, in ms."""
    times = []
    with connection.producer() as producer:
        for topic in topics:
            for queue_id in range(queues):
                send = partial(producer.send, topic, b"x" * 100, keys="key", queue_id=queue_id)
                times.append(1000 * _timed(send))
    return times


def _look_at_all(connection: Connection) -> None:
    connection.topics.all()
    connection.problems()
    connection.unflushed()


def _rate(options: BenchOptions, connection: Connection, topics: list[str]) -> tuple[float, float]:
    """Return the messages a second, and the processor time of the node's processes for each."""
    tables = max(options.amount(_TABLES), len(topics))
    table = order_table(_ROWS)

    def work() -> None:
        for number in range(tables):
            topic = topics[number % len(topics)]
            producer.send_many(topic, table, property_columns=["a", "region"])

    with connection.producer() as producer:
        work()  # rings, files and the first look-ups
        before = node_processor_s()
        rate = options.median_rate(tables * _ROWS, work)
        used_s = node_processor_s() - before
    return rate, used_s / (options.runs * tables * _ROWS) * 1e6


def _kill_shards(connection: Connection, topics: list[str]) -> None:
    """Kill the processes of all shards; return when each queue answers again."""
    configs = connection.topics.all()
    names = {name for topic in topics for name in configs[topic].by_process()}
    for name in names:
        actor = find_actor(DEFAULT_CLUSTER, process_actor(name))
        os.kill(ray.get(actor.pid.remote()), signal.SIGKILL)
    deadline = time.perf_counter() + TIMEOUT_S
    waiting = {name: configs[topic] for topic in topics for name in configs[topic].by_process()}
    for topic in waiting.values():  # one of each process, which answers when all its queues do
        while True:
            try:
                connection.shard_statistics(topic.name)
                break
            except ShardUnavailableError:
                if time.perf_counter() > deadline:
                    raise
                time.sleep(_LOOK_S)
