"""The window for the next records of one queue: the ends of log, queue and index, for a kernel.

A window is open while each of the three has a file with room, up to the bytes that have blocks. It
is a fast path: records that do not fit go through :meth:`~.message_store.MessageStore.append`,
which creates and extends files, and after which a new window is opened.

The kernel does not write ConsumeQueueExt. If entries get units, these are added after the kernel,
for all entries of a pass at once, before the end of the queue moves behind the entries.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from rocketray.errors import StoreFullError
from rocketray.kernels.drain import StoreCursor
from rocketray.kernels.layout import ENTRY_BYTES
from rocketray.kernels.records import find_property_strings

from .files.mapped_file import MappedFile
from .formats.record import BLANK_BYTES
from .index.key_index import KeyIndex
from .log.commit_log import CommitLog
from .queues.consume_queue import ENTRY, ConsumeQueue

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]
MakeBitmaps = Callable[[_Bytes, _Int64s, _Int64s], _Bytes | None]
_NO_INDEX = np.empty(0, np.uint8)


def open_window(
    log: CommitLog, queue: ConsumeQueue, index: KeyIndex, room: int
) -> AppendWindow | None:
    """Return the window at the current ends, or None when a file has to be created first.

    It takes *room* messages at most; None without room.
    """
    log_file, queue_file = log.files.file(log.max_offset), queue.segment()
    if log_file is None or queue_file is None or room <= 0:
        return None
    return AppendWindow(log, log_file, queue, queue_file, index, room=room)


class AppendWindow:
    """The files, and in ``cursor`` a kernel's position in them (:class:`StoreCursor`)."""

    def __init__(
        self,
        log: CommitLog,
        log_file: MappedFile,
        queue: ConsumeQueue,
        queue_file: MappedFile,
        index: KeyIndex,
        *,
        room: int,
    ) -> None:
        self.queue = queue
        self._log = log
        self._index_file = index.newest()
        self.log: _Bytes = log_file.data
        position = queue.max_offset * ENTRY_BYTES - queue_file.start
        # The kernel stops at the end of the array, so neither the blocks of the file nor the room
        # for unflushed messages is exceeded.
        entries_end = min(position + room * ENTRY_BYTES, queue_file.reserved)
        self.queue_entries: _Bytes = queue_file.data[:entries_end]
        self.store_host = log.store_host
        self.index = _NO_INDEX
        self.hash_slots = self.max_entries = index_room = 0
        if self._index_file is not None:
            self.index = self._index_file.data
            self.hash_slots = self._index_file.hash_slots
            self.max_entries = self._index_file.max_entries
            index_room = self._index_file.reserved
        self.cursor = np.zeros(len(StoreCursor), np.int64)
        self.cursor[StoreCursor.LOG_START] = log_file.start
        self.cursor[StoreCursor.LOG_POSITION] = log.max_offset - log_file.start
        # The record that closes the file has to fit behind the last one.
        self.cursor[StoreCursor.LOG_END] = log_file.reserved - BLANK_BYTES
        self.cursor[StoreCursor.QUEUE_POSITION] = position
        self.cursor[StoreCursor.QUEUE_OFFSET] = queue.max_offset
        self.cursor[StoreCursor.INDEX_ROOM] = index_room

    def add_units(self, make_bitmaps: MakeBitmaps, store_timestamp_ms: int) -> None:
        """Add a unit to each entry written since :meth:`advance_ends`, if the queue adds units.

        Without room for units the entries have none: readers then read the records.
        """
        count, ext = int(self.cursor[StoreCursor.MESSAGES]), self.queue.ext
        if not count or ext is None or not self.queue.adds_units:
            return
        end = int(self.cursor[StoreCursor.QUEUE_POSITION])
        entries = self.queue_entries[end - count * ENTRY_BYTES : end].view(ENTRY)
        sizes = entries["size"].astype(np.int32)
        log_end = int(self.cursor[StoreCursor.LOG_POSITION])
        records = self.log[log_end - int(sizes.sum(dtype=np.int64)) : log_end]
        starts, property_sizes = np.empty(count, np.int64), np.empty(count, np.int64)
        bad = find_property_strings(records, sizes, starts, property_sizes)
        assert bad < 0  # the kernel wrote whole records
        bitmaps = make_bitmaps(records, starts, property_sizes)
        times = np.full(count, store_timestamp_ms)
        codes = entries["tags_code"].astype(np.int64)
        # An entry without a unit is valid, and the messages are stored by now: a full disk must not
        # fail them.
        with suppress(StoreFullError):
            ext.reserve(count, 0 if bitmaps is None else bitmaps.shape[1])
            entries["tags_code"] = ext.append(codes, times, bitmaps)

    def advance_ends(self) -> tuple[int, int]:
        """Move the ends of log, queue and index to the cursor; return batches and messages.

        The counts in the cursor restart at 0.
        """
        cursor = self.cursor
        start, position, _, _, queue_offset, _, batches, messages, keys, _ = cursor.tolist()
        if batches:
            # The log first, as in an append: a reader in another thread that sees an entry finds
            # its record.
            self._log.advance(start + position)
            self.queue.max_offset = queue_offset
            if keys:
                assert self._index_file is not None
                self._index_file.advance(keys)
            cursor[StoreCursor.BATCHES :] = 0
        return batches, messages
