"""Reading a store that is open: by offset, by id, by key, by time, and from end to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from rocketray.errors import CorruptRecordError, OffsetOutOfRangeError, StoreClosedError
from rocketray.message import PhysicalOffset, QueueOffset, StoredMessage

from .formats.message_id import decode_offset_id
from .index.index_file import IndexHeader
from .queues.consume_queue import QueueEntry
from .reading.lookups import find_by_key, find_by_time
from .reading.pull import GetMessageResult, MessageFilterLike, PullLimits, empty_result, pull
from .store_files import StoreFiles

__all__ = ["StoreReads"]

_QUERY_MAX_COUNT = 64
_END_OF_TIME = 2**63 - 1


class StoreReads:
    """What a store answers. Safe beside its writer."""

    def __init__(self, directory: Path, files: StoreFiles, *, clock_ms: Callable[[], int]) -> None:
        """Read from *files* of *directory*, which are ready."""
        self.directory = directory
        self._log, self._queues, self._index = files.log, files.queues, files.index
        self._clock_ms = clock_ms
        self._closed = False

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

        A status and a next offset for whatever is asked, as RocketMQ's ``getMessage``; see pull.py.
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
        """The message whose record begins at *physical_offset*.

        Raises:
            OffsetOutOfRangeError: the log does not reach there.
            CorruptRecordError: no whole record begins there.
        """
        self._check_open()
        return self._log.message(physical_offset)

    def view_by_id(self, offset_message_id: str) -> StoredMessage | None:
        """The message with this offset id, or None; raises ConfigError for what is no id."""
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
    ) -> list[StoredMessage]:
        """The newest *max_count* messages of *topic* with *key*, oldest first.

        *key* is a business key or the unique key, compared exactly; the store time is within
        *begin_ms* and *end_ms*, both included. Without *distinct*, a message that carries the key
        twice is there twice and counts twice, as in RocketMQ's ``queryMessage``.
        """
        self._check_open()
        span = (begin_ms, end_ms)
        return find_by_key(
            self._index, self._log, topic, key, max_count=max_count, span=span, distinct=distinct
        )

    def queue_offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> QueueOffset:
        """The first message stored at or after a time, or the last at or before it.

        ``lower`` gives the queue's maximum when all are older, ``upper`` its minimum when all are
        younger.
        """
        self._check_open()
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return QueueOffset(0)
        return QueueOffset(find_by_time(queue, self._log, timestamp_ms, boundary))

    def queue_entry(self, topic: str, queue_id: int, queue_offset: int) -> QueueEntry:
        """One entry of a queue; raises :class:`OffsetOutOfRangeError`."""
        self._check_open()
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            raise OffsetOutOfRangeError(f"queue {topic}/{queue_id}", queue_offset, 0, 0)
        return queue.entry(queue_offset)

    def min_queue_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """The first offset that is still there; 0 for a queue without a message."""
        queue = self._queues.find(topic, queue_id)
        return QueueOffset(queue.min_offset if queue else 0)

    def max_queue_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """The offset that the next message will get."""
        queue = self._queues.find(topic, queue_id)
        return QueueOffset(queue.max_offset if queue else 0)

    def queues(self) -> list[tuple[str, int]]:
        """Topic and queue id of each queue with a message, in order."""
        return [name for name in self._queues.names() if self.max_queue_offset(*name)]

    def scan(self, start: int = 0) -> Iterator[StoredMessage]:
        """Every message from *start*, a record's physical offset, in the order of arrival."""
        self._check_open()
        return self._log.scan(max(start, self._log.min_offset))

    def index_headers(self) -> list[tuple[str, IndexHeader]]:
        """Name and header of each index file, oldest first."""
        self._check_open()
        return self._index.headers()

    @property
    def min_physical_offset(self) -> PhysicalOffset:
        """The first offset of the log that is still there."""
        return self._log.min_offset

    @property
    def max_physical_offset(self) -> PhysicalOffset:
        """The offset behind the last record."""
        return self._log.max_offset

    @property
    def flushed_offset(self) -> PhysicalOffset:
        """Every message below survives power loss."""
        return self._log.flushed_offset

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(f"{self.directory}: the store was closed")
