"""A wall clock that a test sets for all its processes, and no process of the machine beside them.

It is a file with an offset in nanoseconds, named in the environment. Each process maps it when it
starts (sitecustomize.py), and adds it to what ``time.time`` and ``time.time_ns`` say: rocketray
reads the wall clock nowhere else (runtime/clock.py). Clocks that are never set stay true.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

CLOCK = "ROCKETRAY_TEST_CLOCK"
_FORMAT = struct.Struct("<q")


def set_clock(file: Path, offset_ns: int) -> None:
    """Let the clock of all that follow *file* be ahead by that from now on."""
    if not file.exists():
        file.write_bytes(bytes(mmap.PAGESIZE))
    with file.open("r+b") as opened:
        opened.write(_FORMAT.pack(offset_ns))


def follow() -> None:
    """Follow the file that the environment names, if there is one."""
    if CLOCK not in os.environ:
        return
    with Path(os.environ[CLOCK]).open("rb") as file:
        page = mmap.mmap(file.fileno(), _FORMAT.size, access=mmap.ACCESS_READ)
    true_ns = time.time_ns

    def now_ns() -> int:
        return true_ns() + int(_FORMAT.unpack_from(page)[0])

    time.time_ns = now_ns
    time.time = lambda: now_ns() / 1e9
