"""What does it cost producers that stored messages are read again in the background?

A node on the same data is started with and without it in turn, and each figure is the median of its
turns. In a turn one producer sends lists of 1024 to four queues, whose processes have some hundred
MiB to read again; then the node is left alone for a while, for the processor time of the reading
alone. At the end the log is read once more as fast as possible, by the same code.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from rocketray.actors.client.connection import Connection
from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.base.config import SCRUB_RATE
from rocketray.message import Message
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.paths import shard_directory
from rocketray.store.files.store_settings import read_settings
from rocketray.store.recovery.scrub import Scrubber
from rocketray_bench.bench_node import idle_use
from rocketray_bench.orders import TOPIC, order_body, order_options
from rocketray_bench.report import BenchOptions, Row, bench_directory

_QUEUES = 4
_BATCH = 1024
_FILL = 3_000_000  # messages of some 260 bytes
_SEND_S, _IDLE_S = 8, 8
_SETTLE_S = 2.0
_MIB = 1024 * 1024


def run(options: BenchOptions) -> list[Row]:
    """Measure send rates and processor time with and without it, then the check alone."""
    rates: dict[int, list[float]] = {0: [], SCRUB_RATE: []}
    shares: dict[int, list[float]] = {0: [], SCRUB_RATE: []}
    read: list[int] = []
    with bench_directory() as directory:
        data = directory / "data"
        with Node(data) as node, node.connection() as connection:
            connection.topics.create(TOPIC, _QUEUES)
            _send(connection, options.amount(_FILL), 3600.0)
        for _ in range(options.runs):
            for rate in (0, SCRUB_RATE):
                with (
                    Node(data, NodeOptions(scrub_rate=rate)) as node,
                    node.connection() as connection,
                ):
                    _send(connection, _BATCH, 60.0)
                    before = _read_again(connection)
                    rates[rate].append(_send(connection, _FILL, options.amount(_SEND_S)))
                    shares[rate].append(idle_use(options.amount(_IDLE_S), _SETTLE_S)[0])
                    read.append(_read_again(connection) - before)
        alone = [*_alone(data)]
    with_it, without = (statistics.median(rates[rate]) for rate in (SCRUB_RATE, 0))
    pairs = zip(rates[SCRUB_RATE], rates[0], strict=True)
    at_rate = f"{SCRUB_RATE / _MIB:g} MiB/s a process"
    copy = options.ceilings.copy(260)
    return [
        Row("send, without reading again", without, "messages/s", copy),
        Row(f"send, while {at_rate} are read again", with_it, "messages/s", copy),
        Row("ratio of a pair of turns", statistics.median(a / b for a, b in pairs), "of 1", "1"),
        Row("read again in a turn", statistics.median(read[1::2]) / _MIB, "MiB", at_rate),
        Row("processor, idle, without", 100 * statistics.median(shares[0]), "% of a core", "0"),
        Row(
            "processor, idle, with", 100 * statistics.median(shares[SCRUB_RATE]), "% of a core", "0"
        ),
        *alone,
    ]


def _send(connection: Connection, most: int, seconds: float) -> float:
    """Send at most *most* messages in at most *seconds*; return the rate."""
    sent, begun_s = 0, time.perf_counter()
    with connection.producer() as producer:
        while sent < most and time.perf_counter() - begun_s < seconds:
            some = range(sent, sent + _BATCH)
            messages = [Message(TOPIC, order_body(at), **order_options(at)) for at in some]
            producer.send_many(TOPIC, messages)
            sent += _BATCH
    return sent / (time.perf_counter() - begun_s)


def _read_again(connection: Connection) -> int:
    states = connection.scrubs()
    return sum(state.done_bytes for state in states.values() if state is not None)


def _alone(data: Path) -> Iterator[Row]:
    """Yield how fast one queue is read and checked, and the processor time of that."""
    directory = shard_directory(data, TOPIC, 0)
    config = read_settings(directory)
    assert config is not None
    scrubber = Scrubber(directory, config, clock_ms=system_clock_ms, is_written=False, keeps=False)
    end = len([*(directory / "commitlog").glob("0*")]) * config.commit_log_segment_bytes
    scrubber.step(end)  # loads the kernels
    size, begun_s, used_s = 0, time.perf_counter(), time.process_time()
    most = end - 2 * config.commit_log_segment_bytes  # the last files are not full
    while scrubber.done_bytes < most and (count := scrubber.step(end)) is not None:
        size += count
    used_s, took_s = time.process_time() - used_s, time.perf_counter() - begun_s
    if size:
        yield Row("a check, as fast as possible", size / took_s / _MIB, "MiB/s", "the disk")
        yield Row("processor time of a check", 1000 * used_s / (size / _MIB), "ms a MiB", "0")
