"""The limits of the system on one process that has many queues: open files, and maps of them.

A queue has one open file, its lock; mapped files hold none (store/files/file_maps.py). Of maps it
has one, and with messages four. Each producer that sends to it adds one of both, and each full file
of its log that is read adds a map.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

from rocketray.base.quantity import counted

# So the usual 65,530 maps are enough for 12,906 queues, and 20,000 open files for 9,950.
_FILES_A_QUEUE, _MAPS_A_QUEUE = 2, 5  # 1 + 1 and 4 + 1: with messages, and with one producer
_FILES_OF_PROCESS, _MAPS_OF_PROCESS = 100, 1000  # Python's, Ray's and the libraries'
_MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """How many files a process may have open, and how many maps; None where that is not known."""

    open_files: int | None
    maps: int | None

    @classmethod
    def of_system(cls) -> ProcessLimits:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            maps = int(_MAX_MAP_COUNT.read_text())
        except (OSError, ValueError):
            maps = None
        return cls(None if files == resource.RLIM_INFINITY else files, maps)

    def queues(self) -> int | None:
        """Return how many queues a shard process may have; None if that is not known."""
        files = None if self.open_files is None else self.open_files - _FILES_OF_PROCESS
        maps = None if self.maps is None else self.maps - _MAPS_OF_PROCESS
        enough = [
            max(number // each, 0)
            for number, each in ((files, _FILES_A_QUEUE), (maps, _MAPS_A_QUEUE))
            if number is not None
        ]
        return min(enough, default=None)


def shortage(limits: ProcessLimits, process: str, queues: int) -> str | None:
    """Return what *process* lacks for its *queues*, and what to do; None if nothing."""
    files = _FILES_OF_PROCESS + queues * _FILES_A_QUEUE
    maps = _MAPS_OF_PROCESS + queues * _MAPS_A_QUEUE
    lacks = []
    if limits.open_files is not None and files > limits.open_files:
        lacks.append(
            f"{files:,} open files, where {limits.open_files:,} are allowed: raise the hard limit of "
            f"Ray's processes (ulimit -n {files}, or LimitNOFILE={files} of their unit)"
        )
    if limits.maps is not None and maps > limits.maps:
        lacks.append(
            f"{maps:,} memory maps, where {limits.maps:,} are allowed: sysctl -w vm.max_map_count={maps}"
        )
    if not lacks:
        return None
    return (
        f"shard process {process} has {counted(queues, 'queue')}, and needs up to "
        f"{'; and '.join(lacks)}; then start the node again. Until then queues may stay "
        "closed; or create topics with processes of their own (--queues-per-process)"
    )
