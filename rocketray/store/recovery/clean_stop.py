"""``stopped.json``: the content of a store at its close, so that the next opening notices a loss.

    {"log": [0, 4711], "queues": {"Trade/0": [0, 12]}, "index": [["2026…", 37, 4500]], "time": 17…}

It is written when everything else is on disk, and removed before anything is written again. A file
that was lost or cut short while the store was closed shows as a difference. RocketMQ does not
know the file and does not change it: a store that RocketMQ wrote to then differs from it, rightly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from rocketray.errors import CorruptRecordError
from rocketray.store.files.checkpoint import Checkpoint
from rocketray.store.files.file_system import FileSystem, replace_file
from rocketray.store.index.key_index import KeyIndex
from rocketray.store.log.commit_log import CommitLog
from rocketray.store.queues.queue_table import QueueTable

__all__ = ["CleanStop"]

_NAME = "stopped.json"
_MAX_BYTES = 256 * 1024 * 1024  # a million queues


class CleanStop:
    """The file in one directory."""

    def __init__(self, directory: Path, file_system: FileSystem) -> None:
        """Prepare the file; nothing is read yet."""
        self._path = directory / _NAME
        self._file_system = file_system

    def write(
        self, log: CommitLog, queues: QueueTable, index: KeyIndex, checkpoint: Checkpoint
    ) -> None:
        """Write the current ends; durable on return."""
        content = orjson.dumps(_summary(log, queues, index, checkpoint))
        replace_file(self._file_system, self._path, content)

    def difference(
        self, log: CommitLog, queues: QueueTable, index: KeyIndex, checkpoint: Checkpoint
    ) -> str | None:
        """Return a difference to the written ends, or None."""
        before = self._read()
        now = _summary(log, queues, index, checkpoint)
        if before is None:
            is_new = not log.files.starts and not now["queues"] and not now["index"]
            return None if is_new else f"there is no readable {_NAME}"
        if before.keys() != now.keys():
            return f"{_NAME} is not of this version"
        for name, value in now.items():
            if before[name] != value:
                return f"its {name} changed: {_first_difference(before[name], value)}"
        return None

    def check_log(self, log: CommitLog) -> None:
        """Raise :class:`CorruptRecordError` if files of the log lost content."""
        before = self._read()
        held = before.get("log") if before else None
        if not isinstance(held, list) or held[1] <= held[0]:
            return
        starts = log.files.starts
        begins, ends = (starts[0], starts[-1] + log.files.segment_bytes) if starts else (0, 0)
        if held[0] < begins or held[1] > ends:
            raise CorruptRecordError(
                str(self._path.parent / "commitlog"),
                held[0] if held[0] < begins else ends,
                f"the log held offsets {held[0]} to {held[1]} when it was closed, and there are "
                f"files only for {begins} to {ends}; restore the others from a copy, or recover "
                "the rest: rocketray store recover",
            )

    def remove(self) -> None:
        """Remove the file before the store changes; durable when the directory is synced."""
        self._file_system.unlink(self._path)

    def _read(self) -> dict[str, Any] | None:
        try:
            value: Any = orjson.loads(self._file_system.read(self._path, _MAX_BYTES))
        except (FileNotFoundError, ValueError):
            return None
        return value if isinstance(value, dict) else None


def _summary(
    log: CommitLog, queues: QueueTable, index: KeyIndex, checkpoint: Checkpoint
) -> dict[str, Any]:
    return {
        "log": [log.min_offset, log.max_offset],
        "queues": {
            f"{topic}/{queue_id}": [queue.min_offset, queue.max_offset]
            for (topic, queue_id), queue in queues.items()
        },
        "index": [
            [file.path.name, file.header().next_entry, file.header().end_physical_offset]
            for file in index.files
        ],
        "checkpoint": checkpoint.log_timestamp_ms,
    }


def _first_difference(before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            if before.get(name) != now.get(name):
                return f"{name} was {before.get(name)} and is {now.get(name)}"
    return f"it was {before} and is {now}"
