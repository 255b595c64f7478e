"""Processor time of all processes of a cluster, by their parts in it, as Linux counts it.

Seen are the processes of this one's process id namespace, and those of namespaces inside it.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rocketray_bench.bench_node import processor_s

RAY = "Ray"
"""The part of Ray's own processes: GCS, raylets, and their agents."""
_ACTORS = {
    b"ShardProcessActor": "shards",
    b"FilterActor": "filters",
    b"GatewayActor": "gateways",
    b"CoordinatorActor": "coordinator",
}
_NODES = "nodes"
PARTS = ("sender", "receiver", *_ACTORS.values(), _NODES, RAY)
"""All parts; the first two are programs that a benchmark starts."""
_ACTOR_TITLE = re.compile(rb"ray::(\w+)")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER, _IDLE, _WAITING, _GUEST = 0, 3, 4, 8  # of the first line of /proc/stat


@dataclass(frozen=True, slots=True)
class Used:
    """What was used in some seconds: the processor seconds of each part, and of other programs."""

    wall_s: float
    by_part: Mapping[str, float]
    others_s: float


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What was used so far: the machine's processor seconds, and those of each process."""

    at_s: float
    machine_s: float
    by_process: Mapping[int, float]

    @classmethod
    def now(cls) -> ProcessUse:
        """Look at all processes."""
        found = {}
        for each in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended meanwhile
                found[int(each.name)] = processor_s(int(each.name))
        ticks = [*map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:])]
        busy = sum(ticks[_USER:_GUEST]) - ticks[_IDLE] - ticks[_WAITING]
        return cls(time.monotonic(), busy / _TICKS_PER_S, found)

    def since(self, before: ProcessUse, known: Mapping[int, str]) -> Used:
        """Return what was used since *before*; *known* are the parts of this program's children."""
        parts: dict[str, float] = defaultdict(float)
        for pid, used_s in self.by_process.items():
            parts[known.get(pid) or _part(pid)] += used_s - before.by_process.get(pid, 0.0)
        others_s = self.machine_s - before.machine_s - sum(parts.values())
        parts.pop("", None)
        return Used(self.at_s - before.at_s, parts, max(0.0, others_s))


def part_of(command: bytes) -> str:
    """Return the part of a process in a cluster, from its command line; empty if it has none."""
    if title := _ACTOR_TITLE.match(command):
        return _ACTORS.get(title[1], RAY)
    words = command.split(b"\0")
    names = {word.rpartition(b"/")[2] for word in words[:2]}
    if b"rocketray" in names:
        return _NODES
    if names & {b"gcs_server", b"raylet", b"ray"} or b"/ray/" in command:
        return RAY
    return ""


def _part(pid: int) -> str:
    try:
        return part_of(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return ""
