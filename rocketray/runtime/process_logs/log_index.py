"""Which processes write a log, and where: ``DATA/logs/processes.jsonl``, a line for each start.

Ray names the output of its processes by ids of its own, in the directory of its session. So each
process of a node, and each app, appends a line here when it starts. The file is for people and for
``rocketray logs``: nothing depends on it, so a damaged line is left out.

The names of parts are those of actors: ``coordinator``, ``filter``, ``gateway``, ``shards:NAME``,
``app:ID:NUMBER``; ``node`` is the process of ``rocketray start``, ``app:ID`` that of
``python app.py``.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from rocketray.base.json_fields import read_value
from rocketray.runtime.files.paths import log_index_file

_KEPT = 500  # some 200 KB, which each rocketray logs reads
_FILE_MAX_BYTES = 16 << 20  # only a damaged file is larger: drop_lost_logs() runs at each start
_NODE = "node"
_APP = "app:"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The log of one process: its part, and its files, on its machine."""

    part: str
    machine: str
    pid: int
    started_ms: int
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        """What users call the part: that of an app without ``app:``."""
        return self.part.removeprefix(_APP)

    def is_named(self, wanted: str) -> bool:
        """Whether *wanted* is the part, the app or kind that it belongs to, or the whole node."""
        if wanted == _NODE and not self.part.startswith(_APP):
            return True
        names = self.part, self.name
        return any(
            name == wanted or name.startswith((f"{wanted}:", f"{wanted}@")) for name in names
        )


def note_log(data: Path, entry: LogEntry) -> None:
    """Append *entry*; may be called by several processes at a time.

    Raises:
        OSError: *data* does not exist, or takes no file.
    """
    with _locked(data) as file:
        file.seek(0, os.SEEK_END)
        file.write(_line(entry))


def read_logs(data: Path) -> list[LogEntry]:
    """Return all entries, the oldest first; none if no process has noted its log yet."""
    try:
        with log_index_file(data).open("rb") as file:
            return list(_entries(file))
    except FileNotFoundError:
        return []


def drop_lost_logs(data: Path) -> None:
    """Remove the entries without a file left, and the oldest above a limit: at a node's start."""
    with _locked(data) as file:
        kept = [each for each in _entries(file) if any(map(os.path.exists, each.files))][-_KEPT:]
        # In place: processes that wait for the lock of this file would append to a replaced one.
        file.seek(0)
        file.truncate()
        file.write(b"".join(map(_line, kept)))


@contextmanager
def _locked(data: Path) -> Iterator[BinaryIO]:
    path = log_index_file(data)
    path.parent.mkdir(mode=0o700, exist_ok=True)  # no data directory is created
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _entries(file: BinaryIO) -> Iterator[LogEntry]:
    for line in file.read(_FILE_MAX_BYTES).splitlines():
        try:
            yield read_value(LogEntry, json.loads(line), str)
        except ValueError:
            continue


def _line(entry: LogEntry) -> bytes:
    return json.dumps(asdict(entry)).encode() + b"\n"
