"""The limits of this machine, measured now: the yardstick of every other row."""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rocketray.runtime.ipc.control_page import Doorbell

RUNS = 5
_BLOCK_BYTES = 256 * 1024 * 1024  # larger than the caches
_ROUND_TRIPS = 2_000
_SYNCS = 100


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Bandwidths in bytes a second, times in seconds; medians."""

    copy_bytes_per_s: float
    read_bytes_per_s: float
    futex_round_trip_s: float
    fdatasync_s: float

    def copy(self, record_bytes: float) -> str:
        """Return the ceiling of an operation that copies each record once."""
        return f"memcpy {self.copy_bytes_per_s / record_bytes / 1e6:.1f} M/s"

    def read(self, record_bytes: float) -> str:
        """Return the ceiling of an operation that reads each record once."""
        return f"memory read {self.read_bytes_per_s / record_bytes / 1e6:.0f} M/s"

    def wake(self) -> str:
        """Return the ceiling of an operation that wakes another process and is woken by it."""
        return f"futex round trip {self.futex_round_trip_s * 1e6:.0f} µs"

    def sync(self) -> str:
        """Return the ceiling of an operation that waits for the disk."""
        return f"fdatasync {self.fdatasync_s * 1e6:.0f} µs"


def median_rate(runs: int, count: int, work: Callable[[], object]) -> float:
    """Return the median of *count* divided by the seconds that *work* takes."""
    rates = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        rates.append(count / (time.perf_counter() - begun))
    return statistics.median(rates)


def measure() -> Ceilings:
    """Measure all of them; takes a few seconds and 512 MiB."""
    source = np.ones(_BLOCK_BYTES // 8, np.int64)
    target = np.zeros_like(source)
    copied = median_rate(RUNS, _BLOCK_BYTES, lambda: np.copyto(target, source))
    read = median_rate(RUNS, _BLOCK_BYTES, source.sum)
    with tempfile.TemporaryDirectory() as directory:
        round_trip_s = _futex_round_trip(Path(directory))
        fdatasync_s = _fdatasync(Path(directory))
    return Ceilings(copied, read, round_trip_s, fdatasync_s)


def _futex_round_trip(directory: Path) -> float:
    """Return the time there and back between two threads, whose waits release the GIL."""
    there, back = Doorbell(directory / "there"), Doorbell(directory / "back")

    def answer() -> None:
        for number in range(_ROUND_TRIPS):
            there.wait(number, 5.0)
            back.ring()

    thread = threading.Thread(target=answer)
    thread.start()
    times = []
    for number in range(_ROUND_TRIPS):
        begun = time.perf_counter()
        there.ring()
        back.wait(number, 5.0)
        times.append(time.perf_counter() - begun)
    thread.join()
    return statistics.median(times)


def _fdatasync(directory: Path) -> float:
    times = []
    with (directory / "sync").open("wb", buffering=0) as file:
        file.write(bytes(4096 * _SYNCS))
        os.fsync(file.fileno())
        for number in range(_SYNCS):
            os.pwrite(file.fileno(), b"x" * 256, number * 4096)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    return statistics.median(times)
