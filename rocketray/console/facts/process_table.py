"""The processes of a node: its own, and those below it, with their memory.

Actors of a Ray that the node joined are not below its process, and are not listed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rocketray.errors import ActorError
from rocketray.runtime.processes import PROC, program_of

_PPID_FIELD = 1  # of /proc/PID/stat, behind the name in brackets
_RSS_FIELD, _SHARED_FIELD = 1, 2  # of /proc/PID/statm, in pages


def processes_of(data: Path, proc: Path = PROC) -> list[dict[str, Any]]:
    """Return pid, name and memory in bytes of each process of the node on *data*, by memory.

    Memory is the process's own. ``mapped`` is what it has of files and of shared memory, which
    counts in each process that maps it; the machine takes most of it back when it needs room.

    Raises:
        ActorError: it is not known which process runs the node.
    """
    try:
        root = int(json.loads((data / "node.json").read_bytes())["pid"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ActorError(
            f"{data / 'node.json'} does not say which process it is: {error}"
        ) from None
    below: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdecimal() and (parent := _parent(entry)) is not None:
            below.setdefault(parent, []).append(int(entry.name))
    records, left = [], [root]
    while left:
        pid = left.pop()
        left += below.pop(pid, [])
        record = _record(proc / str(pid))
        if record is not None:
            records.append(record)
    return sorted(records, key=lambda record: -record["memory"])


def _parent(entry: Path) -> int | None:
    try:
        text = (entry / "stat").read_text(errors="replace")
    except OSError:
        return None  # it has ended
    # The last bracket: a name may have blanks and brackets in it.
    return int(text.rpartition(")")[2].split()[_PPID_FIELD])


def _record(entry: Path) -> dict[str, Any] | None:
    try:
        name = program_of(int(entry.name), entry.parent)
        pages = (entry / "statm").read_text().split()
        resident, shared = int(pages[_RSS_FIELD]), int(pages[_SHARED_FIELD])
    except (OSError, IndexError):
        # It has ended since the listing.
        return None
    size = os.sysconf("SC_PAGE_SIZE")
    return {
        "pid": int(entry.name),
        "name": name,
        "memory": (resident - shared) * size,
        "mapped": shared * size,
    }
