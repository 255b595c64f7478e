"""Where the next records of one queue go: the ends of log, queue and index, for a kernel to write.

A window is open while every one of the three has a file with room. It is a short cut: what does
not fit goes through :meth:`~.message_store.MessageStore.append`, which makes files, and after
which a new window is opened.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocketray.kernels.drain import StoreCursor
from rocketray.kernels.layout import ENTRY_BYTES

from .commit_log import CommitLog
from .consume_queue import ConsumeQueue
from .key_index import KeyIndex
from .mapped_file import MappedFile
from .record import BLANK_BYTES

__all__ = ["AppendWindow", "open_window"]

_NO_INDEX = np.empty(0, np.uint8)


def open_window(log: CommitLog, queue: ConsumeQueue | None, index: KeyIndex) -> AppendWindow | None:
    """The window at the present ends, or None when a file has to be made first.

    None as well while the queue gets units in ConsumeQueueExt, which the kernel does not write.
    """
    if queue is None or queue.adds_units:
        return None
    log_file, queue_file = log.segment(log.max_offset), queue.segment()
    if log_file is None or queue_file is None:
        return None
    return AppendWindow(log, log_file, queue, queue_file, index)


class AppendWindow:
    """The files, and in ``cursor`` where a kernel stands in them (:class:`StoreCursor`)."""

    def __init__(
        self,
        log: CommitLog,
        log_file: MappedFile,
        queue: ConsumeQueue,
        queue_file: MappedFile,
        index: KeyIndex,
    ) -> None:
        self.queue = queue
        self._log = log
        self._index_file = index.newest()
        self.log: npt.NDArray[np.uint8] = log_file.data
        self.queue_entries: npt.NDArray[np.uint8] = queue_file.data
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
        self.cursor[StoreCursor.LOG_END] = log_file.size - BLANK_BYTES
        self.cursor[StoreCursor.QUEUE_POSITION] = queue.max_offset * ENTRY_BYTES - queue_file.start
        self.cursor[StoreCursor.QUEUE_OFFSET] = queue.max_offset
        self.cursor[StoreCursor.INDEX_ROOM] = index_room

    def settle(self) -> tuple[int, int]:
        """Let log, queue and index end where the cursor stands; returns batches and messages.

        The counts in the cursor begin again.
        """
        cursor = self.cursor
        start, position, _, _, queue_offset, _, batches, messages, keys, _ = cursor.tolist()
        if batches:
            self._log.advance(start + position)
            self.queue.max_offset = queue_offset
            if keys:
                assert self._index_file is not None
                self._index_file.advance(keys)
            cursor[StoreCursor.BATCHES :] = 0
        return batches, messages
