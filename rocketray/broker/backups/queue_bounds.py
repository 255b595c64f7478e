"""The part of a queue that a backup copies: up to the end of its last visible message.

Of a queue that a process writes, the control page tells the end. All messages that were
acknowledged are before it (shard_writer.py), and nothing before it changes any more. A queue that
no process writes is opened read-only: its control page may be older than a power failure.

The first file is looked for before the end is read. If a file is removed in between, messages that
compaction stored again at the end are before the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rocketray.base.config import CONSUME_QUEUE_ENTRY_BYTES
from rocketray.errors import StoreError
from rocketray.runtime.files.paths import control_path, shard_directory
from rocketray.runtime.ipc.control_page import ControlPage
from rocketray.store.files.lock import is_open
from rocketray.store.files.store_settings import read_settings
from rocketray.store.message_store import MessageStore
from rocketray.store.reading.reader import QueueReader

_TRIES = 100  # in each one that fails, a process has opened or closed the queue


@dataclass(frozen=True, slots=True)
class CopyBounds:
    """Offsets of a queue: ``log_begin`` and ``log_end`` are bytes, ``end`` is in messages."""

    log_begin: int
    log_end: int
    end: int

    @property
    def used_bytes(self) -> int:
        """About the size of what is copied."""
        return self.log_end - self.log_begin + self.end * CONSUME_QUEUE_ENTRY_BYTES


def bounds_of(data: Path, topic: str, queue_id: int, *, clock_ms: Callable[[], int]) -> CopyBounds:
    """Return the present bounds of a queue that was made.

    Raises:
        FileNotFoundError: a file was removed just now. StoreError: the queue is damaged.
    """
    directory = shard_directory(data, topic, queue_id)
    for _ in range(_TRIES):
        log_begin = next(iter(starts_in(directory / "commitlog")), 0)
        if is_open(directory):
            return _of_open(data, topic, queue_id, log_begin)
        try:
            with MessageStore(directory, read_only=True, clock_ms=clock_ms) as store:
                names = store.reads.queues()
                end = store.reads.max_queue_offset(topic, queue_id) if names else 0
                bounds = CopyBounds(log_begin, store.reads.max_physical_offset, end)
        except StoreError as error:
            if is_open(directory):
                continue
            said = f"queue {topic}/{queue_id} cannot be copied: {error}"
            if _has_settings(directory):  # else recovery refuses it, too
                said += f"; stop the node, and repair it with: rocketray store recover {directory}"
            raise StoreError(said) from None
        if not is_open(directory):  # else what was read may be half of its recovery
            return bounds
    raise StoreError(f"{directory} is opened and closed all the time; see rocketray status")


def _has_settings(directory: Path) -> bool:
    try:
        return read_settings(directory) is not None
    except StoreError:
        return False


def starts_in(directory: Path) -> list[int]:
    """Return the first offsets of the files in a directory of a store, ascending."""
    names = (path.name for path in directory.iterdir()) if directory.is_dir() else ()
    return sorted(int(name) for name in names if len(name) == 20 and name.isdecimal())


def _of_open(data: Path, topic: str, queue_id: int, log_begin: int) -> CopyBounds:
    control = ControlPage(control_path(data, topic, queue_id))
    end = control.visible()
    if end <= control.minimum():
        return CopyBounds(log_begin, log_begin, end)
    reader = QueueReader(shard_directory(data, topic, queue_id), topic, queue_id)
    try:
        stored = reader.gaps.before(end)  # after a power failure a queue may end with a gap
        if stored <= control.minimum():
            return CopyBounds(log_begin, log_begin, end)
        last = reader.entries(stored - 1, stored)
        log_end = int(last.physical_offsets[0]) + int(last.sizes[0])
    finally:
        reader.close()
    return CopyBounds(log_begin, log_end, end)
