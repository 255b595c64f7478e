"""How do the store's costs grow with the number of messages and of shards?

Each shard is a store of its own, as in a node; all are written and read by one process in turn,
so the figures are those of one core.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np

from rocketray.base.config import StoreConfig
from rocketray.base.quantity import counted
from rocketray.hashing import tags_code
from rocketray.runtime.clock import system_clock_ms
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.reader import QueueReader
from rocketray_bench.orders import TOPIC
from rocketray_bench.report import BenchOptions, Row, bench_directory

from .store import append_all, encoded_batches, key_of, recovery_seconds

_MESSAGES = (100_000, 1_000_000, 10_000_000)
_SHARDS = (1, 4, 16)
_LOOKUPS = 500
_SCAN_BLOCK = 16_384
_BATCHES_AT_ONCE = 64  # so that no more than these are in memory
_IDLE_SHARD = """
import sys
from pathlib import Path
from rocketray.broker.shards.shard_writer import ShardWriter
from rocketray.base.config import StoreConfig
writer = ShardWriter(Path(sys.argv[1]), "Bench", 0, StoreConfig(), clock_ms=lambda: 0)
lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
print(kilobytes["Private_Dirty"] + kilobytes["Private_Clean"])
"""


def run(options: BenchOptions) -> list[Row]:
    """Measure for some minutes with 4 GiB of disk at most; a quick run has 1/20 of the messages."""
    return [
        row for count in _MESSAGES for shards in _SHARDS for row in _measure(options, count, shards)
    ]


def _measure(options: BenchOptions, wanted: int, shards: int) -> list[Row]:
    ceilings = options.ceilings
    with bench_directory() as directory:
        paths = [directory / str(number) for number in range(shards)]
        count, spent, log_bytes = _fill(paths, options.amount(wanted))
        copy, read = ceilings.copy(log_bytes / count), ceilings.read(log_bytes / count)
        of = f"{counted(count, 'message')}, {counted(shards, 'shard')}"
        return [
            Row(f"{of}: put", count / spent, "messages/s", copy),
            Row(f"{of}: log", log_bytes / count, "B/message", "as RocketMQ's"),
            Row(f"{of}: open all", _opened_ms(paths), "ms", "a page a file"),
            Row(f"{of}: query by key", _lookup_us(paths, count), "µs", "a page a file"),
            Row(f"{of}: tag filter, 1 %", _scan_rate(paths, count), "entries/s", ceilings.read(20)),
            Row(f"{of}: an idle shard", _idle_mib(paths[0]), "MiB", "what Python and imports take"),
            Row(f"{of}: recover all", sum(map(recovery_seconds, paths)), "s", read),
        ]


def _fill(paths: list[Path], wanted: int) -> tuple[int, float, int]:
    """Spread *wanted* messages evenly; return their number, seconds of appends, log bytes."""
    count, spent, log_bytes = 0, 0.0, 0
    for path in paths:
        with MessageStore(path, StoreConfig(), clock_ms=system_clock_ms) as store:
            batches = encoded_batches(wanted // len(paths), first=count)
            while part := list(islice(batches, _BATCHES_AT_ONCE)):
                spent += append_all(store, part)
                count += sum(map(len, part))
            log_bytes += store.reads.max_physical_offset
    return count, spent, log_bytes


def _opened_ms(paths: list[Path]) -> float:
    with ExitStack() as stack:
        begun = time.perf_counter()
        for path in paths:
            stack.enter_context(MessageStore(path, clock_ms=system_clock_ms))
        return (time.perf_counter() - begun) * 1e3


def _lookup_us(paths: list[Path], count: int) -> float:
    """Return the time of a lookup in the shard that has the key."""
    generator = np.random.default_rng(5)
    share = count // len(paths)
    spent = 0.0
    for number, path in enumerate(paths):
        first = number * share
        keys = [key_of(first + at) for at in generator.integers(0, share, _LOOKUPS).tolist()]
        with MessageStore(path, clock_ms=system_clock_ms) as store:
            begun = time.perf_counter()
            for key in keys:
                assert store.reads.query(TOPIC, key, 1)
            spent += time.perf_counter() - begun
    return spent / (_LOOKUPS * len(paths)) * 1e6


def _scan_rate(paths: list[Path], count: int) -> float:
    codes = np.array([tags_code("rare")], np.int32)
    share = count // len(paths)
    spent = 0.0
    for path in paths:
        with QueueReader(path, TOPIC, 0) as reader:
            for _ in range(2):  # the first round maps the files
                begun = time.perf_counter()
                for first in range(0, share, _SCAN_BLOCK):
                    reader.match_tags(first, min(first + _SCAN_BLOCK, share), codes)
                last = time.perf_counter() - begun
            spent += last
    return count / spent


def _idle_mib(path: Path) -> float:
    """Return the private memory of a shard's process that has opened its store and waits."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _IDLE_SHARD, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout) / 1024
