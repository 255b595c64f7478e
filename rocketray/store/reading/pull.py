"""Reading of a queue from an offset with a filter: RocketMQ's statuses, next offsets and limits.

Source: RocketMQ 5.3.3, ``DefaultMessageStore.getMessage`` and ``isTheBatchFull``.

Rules
  1. The next offset is one past the last examined entry, whether it matched or not.
  2. The first match is returned whatever its size; limits count from the second.
  3. Every requested offset gets a status and a next offset, never an exception.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Protocol

from rocketray.errors import CorruptRecordError, OffsetOutOfRangeError
from rocketray.message import StoredMessage
from rocketray.store.log.commit_log import CommitLog
from rocketray.store.queues.consume_queue import ConsumeQueue, QueueEntry
from rocketray.store.queues.ext_unit import ExtUnit

_LOG = logging.getLogger(__name__)
_ENTRIES_BETWEEN_CLOCK_LOOKS = 256


class GetMessageStatus(Enum):
    """The outcome of a read, in RocketMQ's order."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9


class MessageFilterLike(Protocol):
    """The store's interface to a filter; the filters package has the implementations."""

    @property
    def needs_record(self) -> bool:
        """Whether :meth:`matches_record` must be called."""

    def matches_entry(self, tags_code: int | None, unit: ExtUnit | None) -> bool:
        """Run stage one, on the queue entry and its ext unit, if it has one.

        None is a tags code that could not be read.
        """

    def matches_record(self, message: StoredMessage) -> bool:
        """Run stage two, on the record."""


@dataclass(frozen=True, slots=True)
class PullLimits:
    """The limits of one read; the defaults are rocketray's own.

    ``resident_bytes`` is how much of the log's end counts as being in memory; records before it
    fall under the limits for disk.
    """

    max_bytes: float = 8 * 1024 * 1024  # two of the largest bodies
    max_time_ms: float = 100  # the end of a read whose filter matches nothing
    max_scan_entries: float = inf
    max_queue_files: float = inf
    memory_max_count: float = inf
    memory_max_bytes: float = inf
    disk_max_count: float = inf
    disk_max_bytes: float = inf
    resident_bytes: float = inf

    @classmethod
    def broker(cls) -> PullLimits:
        """Return a broker's defaults: 800 entries, 32 messages or 8 from disk, one queue file."""
        return cls(
            max_bytes=128 * 1024 * 1024,  # what a pull passes as maxTotalMsgSize
            max_time_ms=inf,
            max_scan_entries=800,  # maxFilterMessageSize 16000 / 20
            max_queue_files=1,  # travelCqFileNumWhenGetMessage
            memory_max_count=32,  # maxTransferCountOnMessageInMemory
            memory_max_bytes=256 * 1024,  # maxTransferBytesOnMessageInMemory
            disk_max_count=8,  # maxTransferCountOnMessageInDisk
            disk_max_bytes=64 * 1024,  # maxTransferBytesOnMessageInDisk
            resident_bytes=24 * 1024**3 * 40 // 100,  # 40 % of the 24 GiB it assumes
        )


@dataclass(frozen=True, slots=True)
class GetMessageResult:
    """The result of a read. ``filter_message_count`` counts rejections by stage two only."""

    status: GetMessageStatus
    next_queue_offset: int
    messages: tuple[StoredMessage, ...]
    min_queue_offset: int
    max_queue_offset: int
    filter_message_count: int = 0

    @property
    def size(self) -> int:
        """The total bytes of the records."""
        return sum(message.size for message in self.messages)


def empty_result() -> GetMessageResult:
    return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, (), 0, 0)


def pull(
    queue: ConsumeQueue,
    log: CommitLog,
    queue_offset: int,
    max_count: int,
    message_filter: MessageFilterLike | None,
    *,
    limits: PullLimits,
    clock_ms: Callable[[], int],
) -> GetMessageResult:
    """Read up to *max_count* matching messages of *queue*, starting at *queue_offset*."""
    minimum, maximum = queue.min_offset, queue.max_offset
    if maximum == 0:
        return empty_result()
    # In the order of getMessage: where all messages are deleted, the offset minimum = maximum is
    # OFFSET_OVERFLOW_ONE.
    if queue_offset < minimum:
        status, following = GetMessageStatus.OFFSET_TOO_SMALL, minimum
    elif queue_offset == maximum:
        status, following = GetMessageStatus.OFFSET_OVERFLOW_ONE, queue_offset
    elif queue_offset > maximum:
        status, following = GetMessageStatus.OFFSET_OVERFLOW_BADLY, maximum
    else:
        scan = _Scan(queue, log, queue_offset, max_count, message_filter, limits, clock_ms)
        scan.run(maximum)
        return GetMessageResult(
            scan.status, scan.next, tuple(scan.messages), minimum, maximum, scan.rejected
        )
    return GetMessageResult(status, following, (), minimum, maximum)


@dataclass(slots=True)
class _Scan:
    """One scan of a queue's entries."""

    queue: ConsumeQueue
    log: CommitLog
    start: int
    max_count: int
    message_filter: MessageFilterLike | None
    limits: PullLimits
    clock_ms: Callable[[], int]
    status: GetMessageStatus = GetMessageStatus.NO_MATCHED_MESSAGE
    next: int = field(init=False)
    messages: list[StoredMessage] = field(default_factory=list)
    size: int = 0
    rejected: int = 0
    skip_until: int = 0
    deadline_ms: float = field(init=False)
    scan_end: float = field(init=False)

    def __post_init__(self) -> None:
        limits = self.limits
        self.next = self.start
        self.deadline_ms = self.clock_ms() + limits.max_time_ms
        # RocketMQ's max(maxFilterMessageSize, maxMsgNums * 20), in entries.
        self.scan_end = self.start + max(limits.max_scan_entries, self.max_count)

    def run(self, maximum: int) -> None:
        """Scan file by file until a limit is reached or the queue ends."""
        files = 0
        while (after := self.queue.gaps.after(self.next)) < maximum:
            self.next = after
            is_limited = self.limits.max_queue_files < inf
            # RocketMQ reads another queue file only while it has found nothing.
            if is_limited and (self.messages or files >= self.limits.max_queue_files):
                return
            files += 1
            before = self.next
            if not self._walk_file(maximum):
                return
            # A queue file is missing, as after a deletion beside this read: RocketMQ goes to the
            # next one.
            if self.next == before:
                self.status = GetMessageStatus.OFFSET_FOUND_NULL
                self.next = self.queue.next_file(before)
                return
        self.next = maximum

    def _walk_file(self, maximum: int) -> bool:
        """Take the entries of one file; return False when a limit was reached."""
        for entry in self.queue.entries(self.next):
            if entry.queue_offset >= maximum or self._is_over(entry) or self._is_full(entry):
                return False
            self.next = entry.queue_offset + 1
            if entry.physical_offset >= self.skip_until:
                self._take(entry)
        return True

    def _take(self, entry: QueueEntry) -> None:
        chosen = self.message_filter
        if chosen is not None and not chosen.matches_entry(entry.tags_code, entry.unit):
            self._miss(GetMessageStatus.NO_MATCHED_MESSAGE)
            return
        try:
            message = self.log.message(entry.physical_offset, entry.size)
        except CorruptRecordError as error:  # RocketMQ would return the bytes
            _LOG.warning("queue offset %d is skipped: %s", entry.queue_offset, error)
            self._miss(GetMessageStatus.MESSAGE_WAS_REMOVING)
            return
        except OffsetOutOfRangeError:
            self._miss(GetMessageStatus.MESSAGE_WAS_REMOVING)
            # The file was deleted, and its other records with it: RocketMQ skips them, too.
            segment_bytes = self.log.files.segment_bytes
            self.skip_until = (entry.physical_offset // segment_bytes + 1) * segment_bytes
            return
        if chosen is not None and chosen.needs_record and not chosen.matches_record(message):
            self._miss(GetMessageStatus.NO_MATCHED_MESSAGE)
            self.rejected += 1
            return
        self.messages.append(message)
        self.size += entry.size
        self.status = GetMessageStatus.FOUND
        self.skip_until = 0

    def _miss(self, status: GetMessageStatus) -> None:
        if not self.messages:
            self.status = status

    def _is_over(self, entry: QueueEntry) -> bool:
        if entry.queue_offset >= self.scan_end:
            return True
        examined = entry.queue_offset - self.start
        if examined % _ENTRIES_BETWEEN_CLOCK_LOOKS or not examined:
            return False
        return self.clock_ms() >= self.deadline_ms

    def _is_full(self, entry: QueueEntry) -> bool:
        if not self.messages:
            return False
        limits, size = self.limits, self.size + entry.size
        if len(self.messages) >= self.max_count or size > limits.max_bytes:
            return True
        if self.log.max_offset - entry.physical_offset <= limits.resident_bytes:
            return size > limits.memory_max_bytes or len(self.messages) >= limits.memory_max_count
        return size > limits.disk_max_bytes or len(self.messages) >= limits.disk_max_count
