"""``stopped.json``: the content of a store at its close, so that the next opening notices a loss.

    {"version": 1, "log": [0, 4711], "queues": {"Trade/0": [0, 12]},
     "index": [["2026…", 37, 4500]], "checkpoint": 17…,
     "checksums": {"consumequeue/Trade/0": {"00000000000000000000": [240, 34…]}}}

It is written when everything else is on disk, and removed before anything is written again. A file
that was lost or cut short while the store was closed shows as a difference. RocketMQ does not
know the file and does not change it: a store that RocketMQ wrote to then differs from it, rightly.

Checksums are kept of what readers trust without a look at the log: a wrong tags code in a queue, or
a wrong bitmap beside it, would make a filter reject a message that its group should receive. What
RocketMQ adds to a file is behind the bytes that they cover.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import orjson

from rocketray.base.file_form import FileForm, UnknownVersionError
from rocketray.errors import CorruptRecordError
from rocketray.store.files.checkpoint import Checkpoint
from rocketray.store.files.file_system import FileSystem, replace_file
from rocketray.store.files.mapped_file_queue import MappedFileQueue
from rocketray.store.files.written_sums import WrittenSums
from rocketray.store.index.key_index import KeyIndex
from rocketray.store.log.commit_log import CommitLog
from rocketray.store.queues.consume_queue import ConsumeQueue
from rocketray.store.queues.queue_table import QueueTable

_NAME = "stopped.json"
_FORM = FileForm(_NAME)
_CHECKSUMS = "checksums"
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
        """Write the current ends and checksums, after a flush; durable on return."""
        sums = {
            self._name(files): sums.table()
            for queue in queues.all()
            for files, sums in _summed(queue)
        }
        ends = ends_of(log, queues, index, checkpoint)
        content = orjson.dumps(_FORM.of({**ends, _CHECKSUMS: sums}))
        replace_file(self._file_system, self._path, content)

    def is_there(self) -> bool:
        """Return whether the store was closed once since it was created."""
        return self._file_system.exists(self._path)

    def changed_files(self, queues: QueueTable) -> list[str]:
        """Return the queue files that differ from their checksums, by their paths in the store.

        The units of a changed file are dropped: the log does not tell whether a bitmap is right.
        """
        before = self._read() or {}
        tables = before.get(_CHECKSUMS)
        if not isinstance(tables, dict):
            return []
        changed = []
        for queue in queues.all():
            for files, sums in _summed(queue):
                name = self._name(files)
                table = tables.get(name, {})
                differing = sums.restore(table if isinstance(table, dict) else {})
                changed += [f"{name}/{file_name}" for file_name in differing]
                if differing and queue.ext is not None and files is queue.ext.files:
                    queue.ext.clear()
        return changed

    def difference(
        self, log: CommitLog, queues: QueueTable, index: KeyIndex, checkpoint: Checkpoint
    ) -> str | None:
        """Return a difference to the written ends, or None."""
        before = self._read()
        now = ends_of(log, queues, index, checkpoint)
        if before is None:
            is_new = not log.files.starts and not now["queues"] and not now["index"]
            return None if is_new else f"there is no readable {_NAME}"
        if before.keys() != _FORM.of({**now, _CHECKSUMS: {}}).keys():
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

    def _name(self, files: MappedFileQueue) -> str:
        return files.directory.relative_to(self._path.parent).as_posix()

    def _read(self) -> dict[str, Any] | None:
        """Return what was written; nothing of another version, None if it is not readable."""
        try:
            return _FORM.content(orjson.loads(self._file_system.read(self._path, _MAX_BYTES)))
        except UnknownVersionError:
            # It is there and agrees with nothing, so all of the log is read.
            return {}
        except (FileNotFoundError, ValueError):
            return None


def _summed(queue: ConsumeQueue) -> Iterator[tuple[MappedFileQueue, WrittenSums]]:
    """Yield the files of *queue* that have checksums, with them."""
    yield queue.files, queue.sums
    if queue.ext is not None:
        yield queue.ext.files, queue.ext.sums


def ends_of(
    log: CommitLog, queues: QueueTable, index: KeyIndex, checkpoint: Checkpoint
) -> dict[str, Any]:
    """Return where the files begin and end, as it is written down."""
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
    if isinstance(before, list) and isinstance(now, list):
        for one, other in zip_longest(before, now):
            if one != other:
                return f"it was {one} and is {other}"
    return f"it was {before} and is {now}"
