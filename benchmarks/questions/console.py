"""What does a tail in the console cost the node, at 100,000 messages a second?

Messages arrive at that rate, in turn without and with a tail that runs an SQL92 filter and is read
as a browser reads it. The processor time of the shard's process for each message is compared; a
ratio is the median of those of neighbouring runs, half of which begin with the tail. The console's
own time is a row of its own.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

from rocketray.actors.client.connection import Connection
from rocketray_bench.bench_node import bench_node, descendants, processor_s
from rocketray_bench.orders import TOPIC, order_table
from rocketray_bench.report import BenchOptions, Row

_RATE = 100_000
_TABLE = 1_000
_SECONDS = 10
_PAIRS = 3  # for each run: a ratio near 1 needs more of them
_FILTER = "a > 50"
_WAIT_S = 60.0


def run(options: BenchOptions) -> list[Row]:
    """Measure pairs of runs."""
    seconds = options.amount(_SECONDS)
    off: list[float] = []
    ratios: list[float] = []
    shares: list[float] = []
    scanned: list[float] = []
    with bench_node() as connection, _console(connection.data) as program:
        connection.topics.create(TOPIC, 1)
        _sent(connection, seconds, program.pid)  # the first messages create files
        for pair in range(options.runs * _PAIRS):
            if pair % 2:
                without, _ = _sent(connection, seconds, program.pid)
            with program.tail() as tail:
                used, share = _sent(connection, seconds, program.pid)
            if not pair % 2:
                without, _ = _sent(connection, seconds, program.pid)
            off.append(without)
            ratios.append(used / without)
            shares.append(share)
            scanned.append(tail.scanned / seconds)
    return [
        Row("the shard without a tail", statistics.median(off) * 1e6, "µs/message", "0"),
        Row("with a tail: its time beside without", statistics.median(ratios), "of 1", "1"),
        Row("the tail reads", statistics.median(scanned), "messages/s", f"{_RATE:,}"),
        Row("the console", statistics.median(shares) * 100, "% of a core", "0"),
    ]


def _sent(connection: Connection, seconds: int, console: int) -> tuple[float, float]:
    """Send at the rate; return the shard's time per message, and the console's share of a core."""
    shard = _shard()
    table = order_table(_TABLE)
    count = seconds * _RATE // _TABLE
    begun, console_s, shard_s = time.perf_counter(), processor_s(console), processor_s(shard)
    with connection.producer() as producer:
        for number in range(count):
            time.sleep(max(0.0, begun + number * _TABLE / _RATE - time.perf_counter()))
            producer.send_many(TOPIC, table, property_columns=["a", "region"])
    console_s, shard_s = processor_s(console) - console_s, processor_s(shard) - shard_s
    return shard_s / (count * _TABLE), console_s / (time.perf_counter() - begun)


def _shard() -> int:
    """Return the process of the topic's queue, the only one with a shard."""
    for pid in descendants(os.getpid()):
        with suppress(OSError):  # it has ended
            if b"ShardProcess" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    raise AssertionError("no process has shards")


@dataclass(slots=True)
class _Tail:
    """What a reader of the stream saw."""

    scanned: int = 0


@dataclass(frozen=True, slots=True)
class _Program:
    """A console in a process of its own."""

    pid: int
    link: str

    @contextmanager
    def tail(self) -> Iterator[_Tail]:
        """Read the stream of a tail until the block ends."""
        address = urlsplit(self.link)
        token = parse_qs(address.query)["token"][0]
        http_link = http.client.HTTPConnection(address.netloc, timeout=_WAIT_S)
        query = urlencode({"topic": TOPIC, "kind": "SQL92", "filter": _FILTER})
        http_link.request(
            "GET", f"/tail/stream?{query}", headers={"Authorization": f"Bearer {token}"}
        )
        answer = http_link.getresponse()
        assert answer.status == 200, answer.read()
        tail, ended = _Tail(), threading.Event()

        def read() -> None:
            with suppress(OSError, ValueError, AttributeError):  # it is closed
                for line in itertools.takewhile(lambda _: not ended.is_set(), answer):
                    if line.startswith(b"data: ") and b'"rows"' in line:
                        tail.scanned = json.loads(line[6:])["counters"]["scanned"]

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        try:
            yield tail
        finally:
            ended.set()
            reading.join()
            http_link.close()


@contextmanager
def _console(data: Path) -> Iterator[_Program]:
    command = [sys.executable, "-P", "-m", "rocketray", "console", "--port", "0"]
    process = subprocess.Popen([*command, "--data", str(data)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, "rocketray console has ended"
        yield _Program(process.pid, line.split()[-1])
    finally:
        process.terminate()
        process.communicate(timeout=_WAIT_S)
