"""What does ``ack="disk"`` cost beside ``"memory"``, by size of the batch and number of producers?

Producers are in processes of their own, at most eight, with several threads each where there are
more producers; each makes its messages as it sends them, waits for each batch to be acknowledged,
and has four queues. The two acknowledgements take turns, each begins when all before is on disk,
and each figure is the median of its turns.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rocketray.actors.client.connection import Connection
from rocketray.base.ack_mode import AckMode
from rocketray.base.quantity import counted
from rocketray.message import Message
from rocketray.messaging.producers.producer import NodeProducer
from rocketray_bench.bench_node import bench_node, node_processor_s, processor_s
from rocketray_bench.orders import TOPIC, order_body, order_options
from rocketray_bench.report import BenchOptions, Row, bench_directory

_QUEUES = 4
_PROCESSES_MAX = 8
_PRODUCERS = (1, 8, 64)
_BATCHES = (1, 32, 1024)
_ACKS: tuple[AckMode, AckMode] = ("memory", "disk")
_TURN_S = 2.0
_WARM_UP_S = 0.3
_SYNCS = 200
_SYNC_BYTES = {"4 KiB": 4096, "272 KiB, as much as 1,024 messages": 272 * 1024}
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_IDLE, _WAITING, _GUEST = 3, 4, 8  # of the first line of /proc/stat


class _Turn(NamedTuple):
    ack: AckMode
    batch: int
    seconds: float


class _Sent(NamedTuple):
    """What one process sent in a turn: a second's messages, and what each batch took."""

    rate: float
    took_s: list[float]


def run(options: BenchOptions) -> list[Row]:
    """Measure the disk, then each number of producers with each size of a batch."""
    rows = [*_syncs()]
    others: list[float] = []
    with bench_node() as connection:
        connection.topics.create(TOPIC, _QUEUES)
        for producers in _PRODUCERS[:: 2 if options.quick else 1]:
            with _senders(connection, producers) as send:
                for batch in _BATCHES:
                    with _noting_others(others):
                        rows += _cell(options, connection, send, (producers, batch))
    used = statistics.mean(others)
    return [*rows, Row("other programs meanwhile", used, "cores", f"{os.cpu_count()} cores")]


def _cell(
    options: BenchOptions,
    connection: Connection,
    send: Callable[[_Turn], list[_Sent]],
    cell: tuple[int, int],
) -> Iterator[Row]:
    """Yield both rates, their ratio, and what a batch takes with each."""
    producers, batch = cell
    what = f"{counted(producers, 'producer')}, {counted(batch, 'message')} a batch"
    seconds = _TURN_S / 10 if options.quick else _TURN_S
    rates: dict[AckMode, list[float]] = {ack: [] for ack in _ACKS}
    took_s: dict[AckMode, list[float]] = {ack: [] for ack in _ACKS}
    send(_Turn("memory", batch, _WARM_UP_S))
    for _ in range(options.runs):
        for ack in _ACKS:
            _settle(connection)
            sent = send(_Turn(ack, batch, seconds))
            rates[ack].append(sum(each.rate for each in sent))
            took_s[ack] += itertools.chain.from_iterable(each.took_s for each in sent)
    ceilings = options.ceilings
    medians = {ack: statistics.median(rates[ack]) for ack in _ACKS}
    for ack, ceiling in zip(_ACKS, (ceilings.wake(), ceilings.sync()), strict=True):
        yield Row(f"{what}, {ack}", medians[ack], "messages/s", ceiling)
        for percentile in (50, 99):
            took_ms = 1000 * float(np.percentile(took_s[ack], percentile))
            yield Row(f"{what}, {ack}, p{percentile} of a batch", took_ms, "ms", ceiling)
    by_turn = zip(rates["disk"], rates["memory"], strict=True)
    ratio = statistics.median(disk / memory for disk, memory in by_turn)
    yield Row(f"{what}, disk beside memory", ratio, "of its rate", "1")


def _settle(connection: Connection) -> None:
    """Wait until all is on disk, so that a turn does not pay for the one before."""
    while any(connection.unflushed().values()):
        time.sleep(0.02)


@contextmanager
def _senders(connection: Connection, producers: int) -> Iterator[Callable[[_Turn], list[_Sent]]]:
    """Run processes with so many producers; yield the function that has all of them send."""
    spawn = multiprocessing.get_context("spawn")
    count = min(producers, _PROCESSES_MAX)
    with ExitStack() as running:
        pipes = []
        for _ in range(count):
            pipe, its_pipe = spawn.Pipe()
            arguments = str(connection.data), producers // count, its_pipe
            process = spawn.Process(target=_keep_sending, args=arguments, daemon=True)
            process.start()
            running.callback(process.join)
            running.callback(pipe.send, None)
            pipes.append(pipe)
        for pipe in pipes:
            pipe.recv()

        def send(turn: _Turn) -> list[_Sent]:
            for pipe in pipes:
                pipe.send(turn)
            return [pipe.recv() for pipe in pipes]

        yield send


def _keep_sending(data: str, producers: int, pipe: Pipe) -> None:
    """Send as told, from so many producers of this process, until told to end."""
    with ExitStack() as opened:
        connection = opened.enter_context(Connection.open(data))
        senders = [opened.enter_context(NodeProducer(connection)) for _ in range(producers)]
        pipe.send(None)
        while (turn := pipe.recv()) is not None:
            took_s: list[float] = []
            begun_s = time.perf_counter()
            end_s = begun_s + turn.seconds
            threads = [
                threading.Thread(target=_send, args=(sender, turn, end_s, took_s))
                for sender in senders
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rate = len(took_s) * turn.batch / (time.perf_counter() - begun_s)
            pipe.send(_Sent(rate, took_s))


def _send(producer: NodeProducer, turn: _Turn, end_s: float, took_s: list[float]) -> None:
    """Send batches until *end_s*, at least one to each queue; each waits for the one before."""
    numbers = itertools.count()
    for sent in itertools.count():
        begun_s = time.perf_counter()
        if sent >= _QUEUES and begun_s >= end_s:
            break
        if turn.batch == 1:
            number = next(numbers)
            producer.send(TOPIC, order_body(number), ack=turn.ack, **order_options(number))
        else:
            some = itertools.islice(numbers, turn.batch)
            messages = [Message(TOPIC, order_body(at), **order_options(at)) for at in some]
            producer.send_many(TOPIC, messages, ack=turn.ack)
        took_s.append(time.perf_counter() - begun_s)


def _syncs() -> Iterator[Row]:
    """Yield what fdatasync takes here, each after a write into blocks that the file has."""
    with bench_directory() as directory, (directory / "sync").open("wb", buffering=0) as file:
        for name, size in _SYNC_BYTES.items():
            took_ms = _sync_times(file.fileno(), size)
            for percentile in (50, 99):
                value = float(np.percentile(took_ms, percentile))
                yield Row(
                    f"fdatasync of {name}, p{percentile}", value, "ms", str(_device(directory))
                )


def _sync_times(descriptor: int, size: int) -> list[float]:
    os.pwrite(descriptor, bytes(size * _SYNCS), 0)
    os.fsync(descriptor)
    took_ms = []
    for number in range(_SYNCS):
        os.pwrite(descriptor, b"x" * size, number * size)
        begun = time.perf_counter()
        os.fdatasync(descriptor)
        took_ms.append(1000 * (time.perf_counter() - begun))
    return took_ms


def _device(directory: Path) -> str:
    """Return the device that a directory is on, and its file system, as Linux names them."""
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = [mount for mount in mounts if directory.resolve().is_relative_to(mount[1])]
    device, _, kind = max(above, key=lambda mount: len(mount[1]))
    return f"{device}, {kind}"


@contextmanager
def _noting_others(others: list[float]) -> Iterator[None]:
    """Note how many cores other programs use during the block; this one's processes live on."""

    def others_s() -> float:
        return _machine_s() - node_processor_s() - processor_s(os.getpid())

    begun_s, before_s = time.monotonic(), others_s()
    yield
    others.append(max(0.0, others_s() - before_s) / (time.monotonic() - begun_s))


def _machine_s() -> float:
    """Return the processor seconds that all programs of this machine have used."""
    ticks = [*map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:])][:_GUEST]
    return (sum(ticks) - ticks[_IDLE] - ticks[_WAITING]) / _TICKS_PER_S
