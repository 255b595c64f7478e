"""Which way of flushing disturbs a thread that is busy in Python least?

A shard flushes from a second thread, beside the one that writes. ``mmap.flush`` keeps the GIL while
it waits for the disk, so the writer stops. The store's own sync, ``msync`` of the C library,
releases it, and then waits for the busy thread to release it again. Both are measured: the
remaining pace of the busy thread, and the time of a flush of 64 KiB from its call to its return.
"""

from __future__ import annotations

import mmap
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rocketray.store.files.file_maps import address_of, sync_map
from rocketray_bench.report import BenchOptions, Row, bench_directory

_FILE_BYTES = 64 << 20
_DIRTY_BYTES = 64 << 10
_SECONDS = 2.0
_PAUSE_S = 0.005


def run(options: BenchOptions) -> list[Row]:
    """Measure for some ten seconds."""
    seconds = _SECONDS / 20 if options.quick else _SECONDS
    alone = _pace(seconds)
    sync = options.ceilings.sync()
    with bench_directory() as directory:
        rows = []
        for name in ("msync", "mmap.flush"):
            pace, took = _beside_busy_thread(directory / "file", name, seconds)
            rows += [
                Row(f"pace of a busy thread beside {name}", 100 * pace / alone, "%", "100 %"),
                Row(f"{name} of 64 KiB beside a busy thread", took * 1e3, "ms", sync),
            ]
    return rows


def _pace(seconds: float) -> float:
    """Return how far plain Python counts in a second."""
    begun = time.perf_counter()
    count = 0
    while time.perf_counter() - begun < seconds:
        count += 1
    return count / (time.perf_counter() - begun)


def _beside_busy_thread(path: Path, name: str, seconds: float) -> tuple[float, float]:
    """Return the pace of the busy thread, and the median seconds of a flush."""
    path.write_bytes(bytes(_FILE_BYTES))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), _FILE_BYTES) as mapped:
        mapped.flush()
        address = address_of(mapped)
        flush: Callable[[int], object] = {
            "msync": lambda _: sync_map(path, address, _FILE_BYTES),
            "mmap.flush": lambda at: mapped.flush(at, _DIRTY_BYTES),
        }[name]
        times: list[float] = []
        stop = threading.Event()
        flusher = threading.Thread(target=_flush_on, args=(mapped, flush, times, stop))
        flusher.start()
        pace = _pace(seconds)
        stop.set()
        flusher.join()
    return pace, statistics.median(times)


def _flush_on(
    mapped: mmap.mmap, flush: Callable[[int], object], times: list[float], stop: threading.Event
) -> None:
    """Dirty a part of the file and flush it, repeatedly."""
    at = 0
    while not stop.wait(_PAUSE_S):
        mapped[at : at + _DIRTY_BYTES] = bytes([len(times) % 251 + 1]) * _DIRTY_BYTES
        begun = time.perf_counter()
        flush(at)
        times.append(time.perf_counter() - begun)
        at = (at + _DIRTY_BYTES) % _FILE_BYTES
