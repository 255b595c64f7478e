"""``rocketray store verify --scrub``: read complete log files again, beside a node that runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketray.base.units import format_bytes
from rocketray.cli.arguments.store_directory import open_stores, told_settings
from rocketray.cli.terminal.output import progress
from rocketray.errors import StoreError
from rocketray.runtime.clock import system_clock_ms

if TYPE_CHECKING:
    from rocketray.base.config import StoreConfig

# Sixteen times the rate of a node's own scrub, as a person waits for the end of this one.
SCRUB_RATE_DEFAULT = format_bytes(16 * 1024 * 1024)
_PROGRESS_S = 5.0  # between two lines on stderr
_IN_USE = 2  # files at the end of a log whose flushed offset is not known: a next one is prepared


def scrub_store(path: Path, index_hash_slots: int | None, bytes_a_second: int) -> dict[str, Any]:
    """Return the description of the store *path* and its problems, after reading its log once.

    *bytes_a_second* of 0 are as many as the disk has. Raises :class:`StoreError`.
    """
    from rocketray.store.recovery.scrub import Scrubber  # imports NumPy

    foreign = told_settings(path, index_hash_slots)
    config = foreign.config if foreign else _settings(path)
    end, is_written = _end_of(path, index_hash_slots)
    scrubber = Scrubber(
        path,
        config,
        clock_ms=system_clock_ms,
        is_foreign=foreign is not None,
        is_written=is_written,
        keeps=False,
    )
    begun_s = told_s = time.monotonic()
    read = 0
    while (count := scrubber.step(end)) is not None:
        read += count
        if time.monotonic() - told_s >= _PROGRESS_S:
            told_s = time.monotonic()
            share = 100 * scrubber.done_bytes // max(scrubber.all_bytes, 1)
            places = len(scrubber.progress.damage)
            progress(f"{path}: {share} % of {scrubber.all_bytes} bytes read, {places} problems")
        if bytes_a_second:
            # Against the start, so that what a slow disk lost is made good later.
            time.sleep(max(0.0, begun_s + read / bytes_a_second - time.monotonic()))
    return {
        "directory": str(path),
        "bytes": scrubber.done_bytes,
        "maxPhyOffset": end,
        "inUse": is_written,
        "seconds": round(time.monotonic() - begun_s, 3),
        "problems": [
            {"file": str(path / one.file), "offset": one.offset, "problem": one.what}
            for one in scrubber.progress.damage
        ],
    }


def _settings(path: Path) -> StoreConfig:
    from rocketray.store.files.store_settings import read_settings, without_settings  # orjson

    config = read_settings(path)
    if config is None:
        raise StoreError(f"{path} has no store.json; {without_settings(path)}")
    return config


def _end_of(path: Path, index_hash_slots: int | None) -> tuple[int, bool]:
    """Return up to where the log can be read, and whether a process may write it meanwhile."""
    from rocketray.runtime.files.paths import CONTROL_PAGE
    from rocketray.runtime.ipc.control_page_reader import ControlView  # NumPy
    from rocketray.store.files.file_system import SYSTEM_FILES  # imports NumPy
    from rocketray.store.files.open_mark import was_clean  # imports NumPy

    if was_clean(path, SYSTEM_FILES):
        with open_stores(path, index_hash_slots=index_hash_slots) as (opened,):
            return int(opened.store.reads.max_physical_offset), False
    try:
        return ControlView(path / CONTROL_PAGE).flushed(), True
    except FileNotFoundError:
        # A broker's directory has no control page, so what it has flushed is unknown.
        names = SYSTEM_FILES.names(path / "commitlog")
        starts = [int(name) for name in names if len(name) == 20 and name.isdecimal()]
        return starts[-_IN_USE] if len(starts) >= _IN_USE else 0, True
