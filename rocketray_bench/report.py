"""The benchmarks by name, and their rows: a question, a value, and the machine's limit.

A benchmark is imported when it is run. Values are medians of several runs in one process; a row
with several values names its own.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .ceilings import RUNS, Ceilings, measure, median_rate

__all__ = ["BENCHMARKS", "BenchOptions", "Row", "bench_directory", "counted", "run", "to_json"]

BENCHMARKS = {
    "send": "one producer, to four queues and to one: single, unbatched, lists, Arrow tables",
    "acks": "ack=disk beside memory: 1 to 1024 messages a batch, 1 to 64 producers",
    "consume": "a backlog: an agent (bytes, JSON, Records, Arrow), a plain member, with filters",
    "remote": "a member on another machine: a backlog with and without compression, one message",
    "staging": "rows of Spark's writer, without Spark: exactly once, at least once, a producer's tables",
    "groups": "1, 10 and 100 groups on one topic, and the memory of a member that is far behind",
    "store": "the store alone: put, lookups by key, Arrow columns, recovery",
    "growth": "the store from 10⁵ to 10⁷ messages and 1 to 16 shards, and an idle shard's memory",
    "crc": "the CRC over each record beside none: storing, reading, filtering, sending, consuming",
    "flush": "two ways of flushing beside a thread that is busy in Python",
    "scan": "the store alone: tag scan of the ConsumeQueue, SQL92 over records",
    "bitmaps": "filter bitmaps: the time they save in SQL92 scans, and their cost at the put",
    "idle": "processor time and memory of a node that does nothing, and of each of its queues",
    "telemetry": "metrics and traces: what they cost an agent that reads a backlog",
    "console": "a tail in the console: what it costs a node that stores 100,000 messages a second",
    "reading_again": "reading stored messages again in the background: what it costs producers",
    "queues": "1 to 10,000 queues: rate, memory and processor time of the idle node, opening",
    "latency": "from publishing to an agent's handler, and to a plain member, at 1000 messages a second",
}


@dataclass(frozen=True)
class BenchOptions:
    """``quick`` is for a smoke run: small amounts, three runs; its figures are not meaningful."""

    quick: bool = False

    @property
    def runs(self) -> int:
        """The number of runs of which a median is taken."""
        return 3 if self.quick else RUNS

    @cached_property
    def ceilings(self) -> Ceilings:
        """The limits of this machine, measured at first use."""
        return measure()

    def amount(self, full: int) -> int:
        """Return *full*, or a twentieth of it in a quick run."""
        return max(1, full // 20) if self.quick else full

    def median_rate(self, count: int, work: Callable[[], object]) -> float:
        """Return the median of *count* divided by the seconds that *work* takes."""
        return median_rate(self.runs, count, work)


@dataclass(frozen=True, slots=True)
class Row:
    """One result; ``ceiling`` is its limit on this machine, in words and measured now."""

    question: str
    value: float
    unit: str
    ceiling: str


def counted(count: int, what: str) -> str:
    """Return the number and the noun, as in ``1 queue`` and ``4 queues``."""
    return f"{count:,} {what}{'s' * (count > 1)}"


@contextmanager
def bench_directory() -> Iterator[Path]:
    """Make a directory on this machine's disk that is deleted after the block."""
    with tempfile.TemporaryDirectory(prefix="rocketray-bench-") as name:
        yield Path(name)


def to_json(rows: list[Row]) -> dict[str, Any]:
    """Return the report as it is written and printed, with the machine that it belongs to."""
    machine = {
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    return {"machine": machine, "rows": [asdict(row) for row in rows]}


def run(name: str, *, quick: bool = False) -> list[Row]:
    """Run one of the benchmarks."""
    module = import_module(f"{__package__}.{name}")
    work: Callable[[BenchOptions], list[Row]] = module.run
    return work(BenchOptions(quick=quick))
