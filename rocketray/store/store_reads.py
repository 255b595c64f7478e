"""Reads of an open store: by offset, by id, by key, by time, and from end to end.

The index finds by the hash of a key and may hold an entry twice after a crash; every hit is read
and compared before it counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from heapq import merge
from typing import Literal

import numpy as np

from rocketray.errors import CorruptRecordError, OffsetOutOfRangeError
from rocketray.hashing import index_key_hash
from rocketray.kernels.hashing import separated_key_hashes
from rocketray.message import PhysicalOffset, QueueOffset, StoredMessage, stored_key

from .formats.message_id import decode_offset_id
from .index.index_file import IndexHeader
from .log.commit_log import CommitLog
from .log.log_walk import scan
from .queues.consume_queue import QueueEntry
from .queues.queue_gaps import NO_GAPS, QueueGaps
from .reading.pull import GetMessageResult, MessageFilterLike, PullLimits, empty_result, pull
from .store_files import StoreFiles

_QUERY_MAX_COUNT = 64  # RocketMQ's maxMsgsNumBatch
_END_OF_TIME = 2**63 - 1  # the largest i64
_LOG = logging.getLogger(__name__)


class StoreReads:
    """The read operations of a store. Safe beside its writer."""

    def __init__(
        self, files: StoreFiles, *, clock_ms: Callable[[], int], check_open: Callable[[], None]
    ) -> None:
        """Read from *files*, which are ready; *check_open* raises if the store was closed."""
        self._log, self._queues, self._index = files.log, files.queues, files.index
        self._clock_ms = clock_ms
        self._check_open = check_open

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        message_filter: MessageFilterLike | None = None,
        *,
        limits: PullLimits = PullLimits(),  # noqa: B008 - immutable
    ) -> GetMessageResult:
        """Read up to *max_count* matching messages from *queue_offset* on.

        Returns a status and a next offset for any input, as RocketMQ's ``getMessage``; see pull.py.
        """
        self._check_open()
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return empty_result()
        return pull(
            queue,
            self._log,
            queue_offset,
            max_count,
            message_filter,
            limits=limits,
            clock_ms=self._clock_ms,
        )

    def view(self, physical_offset: int) -> StoredMessage:
        """Return the message whose record begins at *physical_offset*.

        Raises:
            OffsetOutOfRangeError: the log does not reach there.
            CorruptRecordError: no whole record begins there.
        """
        self._check_open()
        return self._log.message(physical_offset)

    def view_by_id(self, offset_message_id: str) -> StoredMessage | None:
        """Return the message with this offset id, or None; raise ConfigError for an invalid id."""
        offset = decode_offset_id(offset_message_id).physical_offset
        try:
            message = self.view(offset)
        except (CorruptRecordError, OffsetOutOfRangeError):
            return None
        return message if message.offset_message_id == offset_message_id.upper() else None

    def query(
        self,
        topic: str,
        key: str,
        max_count: int = _QUERY_MAX_COUNT,
        begin_ms: int = 0,
        end_ms: int = _END_OF_TIME,
        *,
        distinct: bool = True,
        strict: bool = False,
    ) -> list[StoredMessage]:
        """Return the newest *max_count* messages of *topic* with *key*, oldest first.

        *key* is a business key or the unique key, compared exactly; the store time is within
        *begin_ms* and *end_ms*, both included. Without *distinct*, a message with the key twice is
        returned twice and counts twice, as in RocketMQ's ``queryMessage``. A message that damage
        hides is missing, unless the query is *strict*.

        Raises:
            CorruptRecordError: *strict*, and the index of the key, or a record there, is damaged.
            OffsetOutOfRangeError: *strict*, and retention removed such a record meanwhile.
        """
        self._check_open()
        hits: dict[int, int] = {}
        messages: list[StoredMessage] = []
        stored = stored_key(key)
        # A key with blanks is stored otherwise than a unique key.
        hashes = {_key_hash(topic, each) for each in (key, stored)}
        for offset in merge(*map(self._index.search, hashes), reverse=True):
            if len(messages) >= max_count:
                break
            if offset < self._log.min_offset:
                continue  # the record was deleted, its index file not yet
            message = self._log.message(offset) if strict else _indexed_message(self._log, offset)
            if message is None or message.topic != topic:
                continue
            hits[offset] = hits.get(offset, 0) + 1
            carried = message.stored_keys.count(stored) + (message.unique_key == key)
            carried += message.imported_offset_id == key
            allowed = min(carried, 1) if distinct else carried
            if hits[offset] <= allowed and begin_ms <= message.store_timestamp_ms <= end_ms:
                messages.append(message)
        damaged = [*filter(None, map(self._index.damaged_file, hashes))] if strict else []
        if damaged:
            raise CorruptRecordError(str(damaged[0]), 0, f"the chain of key {key!r:.80} is broken")
        return sorted(messages, key=lambda message: message.physical_offset)

    def queue_offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> QueueOffset:
        """Return the offset of the first message stored at or after a time, or last at or before.

        ``lower`` returns the queue's maximum when all are older, ``upper`` its minimum when all are
        younger. An unreadable record counts as old.
        """
        self._check_open()
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return QueueOffset(0)

        def stored_ms(entry: QueueEntry) -> int:
            return self._log.store_timestamp_ms(entry.physical_offset, entry.size) or 0

        if boundary == "lower":
            first = queue.first_at_or_after(lambda entry: stored_ms(entry) >= timestamp_ms)
            return QueueOffset(first)
        after = queue.first_at_or_after(lambda entry: stored_ms(entry) > timestamp_ms)
        return QueueOffset(max(queue.gaps.before(after) - 1, queue.min_offset))

    def queue_entry(self, topic: str, queue_id: int, queue_offset: int) -> QueueEntry:
        """Return one entry of a queue; raise :class:`OffsetOutOfRangeError`."""
        self._check_open()
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            raise OffsetOutOfRangeError(f"queue {topic}/{queue_id}", queue_offset, 0, 0)
        return queue.entry(queue_offset)

    def min_queue_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the first remaining offset; 0 for a queue without a message."""
        queue = self._queues.find(topic, queue_id)
        return QueueOffset(queue.min_offset if queue else 0)

    def max_queue_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the offset of the next message; 0 for a queue without a message."""
        queue = self._queues.find(topic, queue_id)
        return QueueOffset(queue.max_offset if queue else 0)

    def gaps(self, topic: str, queue_id: int) -> QueueGaps:
        """Return the queue offsets that no message has; see queue_gaps.py."""
        queue = self._queues.find(topic, queue_id)
        return queue.gaps if queue else NO_GAPS

    def queues(self) -> list[tuple[str, int]]:
        """Return topic and queue id of each queue with a message, in order."""
        return [name for name in self._queues.names() if self.max_queue_offset(*name)]

    def scan(self, start: int = 0) -> Iterator[StoredMessage]:
        """Yield every message from *start*, a record's physical offset, in order of arrival."""
        self._check_open()
        return scan(self._log, max(start, self._log.min_offset))

    def index_headers(self) -> list[tuple[str, IndexHeader]]:
        """Return name and header of each index file, oldest first."""
        self._check_open()
        return [(file.path.name, file.header()) for file in self._index.files]

    @property
    def min_physical_offset(self) -> PhysicalOffset:
        """The first remaining offset of the log."""
        return self._log.min_offset

    @property
    def max_physical_offset(self) -> PhysicalOffset:
        """The offset behind the last record."""
        return self._log.max_offset

    @property
    def flushed_offset(self) -> PhysicalOffset:
        """The offset below which every message survives power loss."""
        return self._log.flushed_offset


def _key_hash(topic: str, key: str) -> int:
    """Return the index hash of *key*: as ``index_key_hash``, in a tenth of its time."""
    try:
        # The kernel hashes texts that each end with a separator.
        text = f"{topic}#{key}\x02".encode()
    except UnicodeEncodeError:  # a lone surrogate, which is never stored
        return index_key_hash(f"{topic}#{key}")
    out = np.zeros(1, np.int32)
    separated_key_hashes(np.frombuffer(text, np.uint8), 0, out)
    return int(out[0])


def _indexed_message(log: CommitLog, physical_offset: int) -> StoredMessage | None:
    """Return the record of an index entry; log and return None when there is none."""
    try:
        return log.message(physical_offset)
    except (CorruptRecordError, OffsetOutOfRangeError) as error:
        _LOG.warning("an index entry points to no record: %s", error)
        return None
