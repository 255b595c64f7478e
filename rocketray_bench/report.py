"""The rows of a benchmark: a question, a value, and the machine's limit.

Values are medians of several runs in one process; a row
with several values names its own.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .ceilings import RUNS, Ceilings, measure, median_rate


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


def run(benchmark: ModuleType, *, quick: bool = False) -> list[Row]:
    """Run the benchmark of a module, which is its function ``run``."""
    work: Callable[[BenchOptions], list[Row]] = benchmark.run
    return work(BenchOptions(quick=quick))
