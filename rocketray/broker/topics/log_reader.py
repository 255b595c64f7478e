"""Reads of queues by position: any queue, from any offset on, without a group and without a filter.

For readers that keep positions of their own. Messages are read directly from the mapped log, in
batches; the bell that shards ring for the filter actor wakes a waiting read.

Invariants
  1. Nothing at or beyond the watermark is read, and nothing below the minimum: if messages were
     deleted, a read begins at the first that still exists.
  2. ``read`` is called by one thread at a time; ``bounds`` and ``interrupt`` by any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rocketray.errors import OffsetOutOfRangeError
from rocketray.message import StoredMessage
from rocketray.runtime.files.paths import control_path, filter_doorbell_path, shard_directory
from rocketray.runtime.ipc.control_page import ControlPage, Doorbell
from rocketray.store.reading.packed_records import pack_records
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns

Queue = tuple[str, int]

# Shards do not ring the bell while the filter actor is awake, so a ring may be missed.
_LOOK_AGAIN_S = 0.01
_READ_MAX_BYTES = 8 * 1024 * 1024  # of one queue at once, but always one message
_LET_OTHERS_RUN_S = 0.001  # the bell rings for all topics, also for those not read here


class LogReader:
    """A reader of the queues of one node."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._controls: dict[Queue, ControlPage] = {}
        self._readers: dict[Queue, QueueReader] = {}
        self._minimums: dict[Queue, int] = {}
        self._doorbell = Doorbell(filter_doorbell_path(data))
        self._interrupted = threading.Event()

    def bounds(self, queue: Queue) -> tuple[int, int]:
        """Return the first queue offset that exists, and the one after the last visible message."""
        control = self._controls.get(queue)
        if control is None:
            control = self._controls[queue] = ControlPage(control_path(self._data, *queue))
        return control.minimum(), control.visible()

    def read(
        self, positions: Mapping[Queue, int], max_messages: int, timeout_s: float
    ) -> dict[Queue, list[StoredMessage]]:
        """Return up to *max_messages* of each queue from its position on; wait until there is one.

        Large messages make them fewer. Empty if the time is over, or :meth:`interrupt` was called
        since the last read.

        Raises:
            CorruptRecordError: a message is damaged.
        """
        messages = self._take(positions, max_messages)
        end_s = time.monotonic() + timeout_s
        while not messages and time.monotonic() < end_s and not self._interrupted.is_set():
            rung = self._doorbell.count()
            messages = self._take(positions, max_messages)
            if not messages:
                self._doorbell.wait(rung, _LOOK_AGAIN_S)
                self._interrupted.wait(_LET_OTHERS_RUN_S)
        self._interrupted.clear()
        return messages

    def pack(self, queue: Queue, position: int, max_messages: int) -> bytes:
        """Return what :meth:`read` finds in one queue, as a frame (packed_records.py); b"" if none.

        As :meth:`read`, it is called by one thread at a time.
        """
        found = self._find(queue, position, max_messages)
        if found is None:
            return b""
        reader, entries = found
        return pack_records(reader, entries, int(entries.queue_offsets[-1]) + 1)

    def interrupt(self) -> None:
        """Make the waiting read, or the next one, return at once: its positions are outdated."""
        self._interrupted.set()

    def close(self) -> None:
        """Unmap everything; no read may be running."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _take(
        self, positions: Mapping[Queue, int], max_messages: int
    ) -> dict[Queue, list[StoredMessage]]:
        found = {queue: self._take_from(queue, at, max_messages) for queue, at in positions.items()}
        return {queue: messages for queue, messages in found.items() if messages}

    def _take_from(self, queue: Queue, position: int, max_messages: int) -> list[StoredMessage]:
        found = self._find(queue, position, max_messages)
        return [] if found is None else found[0].messages(found[1])

    def _find(
        self, queue: Queue, position: int, max_messages: int
    ) -> tuple[QueueReader, EntryColumns] | None:
        """Return the entries of a queue from *position* on, and their reader; None if none."""
        while True:
            minimum, visible = self.bounds(queue)
            start = max(position, minimum)
            if start >= visible:
                return None
            reader = self._reader(queue, minimum)
            try:
                stop = min(start + max_messages, visible)
                entries = reader.entries(start, stop).without_holes()
                if len(entries):
                    sizes = np.cumsum(entries.sizes, dtype=np.int64)
                    count = int(np.searchsorted(sizes, _READ_MAX_BYTES, side="right"))
                    entries = entries.select(slice(max(1, count)))
                    reader.map_records(entries)
                    return reader, entries
                position = stop
            except OffsetOutOfRangeError:
                # Removed while it was read, if the minimum has risen; else the files are damaged.
                if self.bounds(queue)[0] == minimum:
                    raise

    def _reader(self, queue: Queue, minimum: int) -> QueueReader:
        reader = self._readers.get(queue)
        if reader is None:
            reader = QueueReader(shard_directory(self._data, *queue), *queue)
            self._readers[queue] = reader
        elif self._minimums[queue] != minimum:
            reader.let_go_before(minimum)
        self._minimums[queue] = minimum
        return reader
