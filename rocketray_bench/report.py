"""The rows of a benchmark: a question, a value, and the machine's limit.

Values are medians of ``RUNS`` runs in one process; a row with several values names its own.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["BenchOptions", "Row", "machine", "median_rate", "to_json"]

RUNS = 5


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """``quick`` is for a smoke run: small amounts, three runs; its figures are not meaningful."""

    quick: bool = False

    @property
    def runs(self) -> int:
        """The number of runs of which a median is taken."""
        return 3 if self.quick else RUNS

    def amount(self, full: int) -> int:
        """Return *full*, or a twentieth of it in a quick run."""
        return max(1, full // 20) if self.quick else full


@dataclass(frozen=True, slots=True)
class Row:
    """One result; ``ceiling`` is its limit on this machine, in words and measured now."""

    question: str
    value: float
    unit: str
    ceiling: str


def median_rate(options: BenchOptions, count: int, work: Callable[[], object]) -> float:
    """Return the median of *count* divided by the seconds that *work* takes."""
    rates = []
    for _ in range(options.runs):
        begun = time.perf_counter()
        work()
        rates.append(count / (time.perf_counter() - begun))
    return statistics.median(rates)


def machine() -> dict[str, Any]:
    """Return the machine and the versions that a figure belongs to."""
    return {
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def to_json(rows: list[Row]) -> dict[str, Any]:
    """Return the report as it is written and printed."""
    return {"machine": machine(), "rows": [asdict(row) for row in rows]}
