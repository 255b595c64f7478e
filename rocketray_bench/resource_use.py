"""The use of resources by processes, as Linux counts it: meaningful on a busy machine too."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["descendants", "own_memory_bytes", "processor_s"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _USER_TICKS, _SYSTEM_TICKS = 1, 11, 12  # of /proc/PID/stat behind the command's name


def descendants(pid: int) -> list[int]:
    """Return the processes that *pid* started, and those that they started."""
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            with suppress(OSError):  # it has ended meanwhile
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[_PARENT]), []).append(int(directory.name))
    found, rest = [], [pid]
    while rest:
        new = children.get(rest.pop(), [])
        found += new
        rest += new
    return found


def processor_s(pid: int) -> float:
    """Return the processor seconds since the process began, in steps of a tick of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS_PER_S


def own_memory_bytes(pids: Iterable[int]) -> int:
    """Return the private memory of the processes.

    Shared memory is divided among its processes (PSS). Files are left out, in shared memory or on
    disk: the first exist once for all, the others belong to the page cache.
    """
    return sum(_own_bytes(Path(f"/proc/{pid}/smaps_rollup")) for pid in pids)


def _own_bytes(rollup: Path) -> int:
    lines = rollup.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:"))
