"""The stored messages of one queue of delayed messages, and their due times.

A damaged record holds up no other: rows that cannot be read together are read one by one.

Two clocks disagree if one was set back. So a message is due at the latest when its delay has passed
since it was first seen here: never early, and never much too late.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from rocketray.base.delay import DELAY_LEVELS_MS, DELAY_MAX_MS, TIMER_PRECISION_MS
from rocketray.base.marks import TIMER_DELAY_MS, TIMER_DELIVER_MS, TIMER_OUT_MS, TIMER_ROLLED_FROM
from rocketray.base.system_topics import LEVELS_A_DISK, SCHEDULE_TOPIC
from rocketray.errors import StoreError
from rocketray.message import ForwardedMessage, StoredMessage
from rocketray.store.files.file_system import FileSystem
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns

from .due_times import Due

_LOG = logging.getLogger(__name__)
CLOCK_STEP_MS = 1000  # a clock that went back by less counts as unchanged
_TIMER_PROPERTIES = (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_OUT_MS)
_DIGITS_MAX = 18  # of milliseconds in an int64
Int64s = npt.NDArray[np.int64]
_Read = TypeVar("_Read")


class WaitingLog(Protocol):
    """The shard that holds the messages."""

    @property
    def directory(self) -> Path:
        """Its store directory."""

    def minimum(self) -> int:
        """Return the first queue offset that still exists."""

    def visible(self) -> int:
        """Return the queue offset behind the last message."""

    def bring_to_disk(self, physical_end: int) -> None:
        """Return when everything before that physical offset is on disk."""

    @property
    def segment_bytes(self) -> int:
        """The size of a file of its log."""

    def append(self, messages: Sequence[ForwardedMessage]) -> bool:
        """Store messages, on disk when this returns; False if they cannot be stored now."""

    def query(self, unique_key: str) -> Sequence[StoredMessage]:
        """Return the messages with that unique key."""


class WaitingRecords:
    """The records of one delay level, or those with a delivery time. For one thread at a time."""

    def __init__(self, log: WaitingLog, topic: str, queue_id: int, file_system: FileSystem) -> None:
        """Open the queue of *log*."""
        self.reader = QueueReader(log.directory, topic, queue_id, file_system=file_system)
        self._log = log
        self._topic = topic
        self._queue_id = queue_id

    def entries(self, offsets: Int64s) -> EntryColumns:
        """Return the queue entries of messages, by offset, after they are on disk."""
        offsets = np.sort(offsets)
        breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
        runs = [run for run in np.split(offsets, breaks) if len(run)]
        found = EntryColumns.concatenated(
            [self.reader.entries(int(run[0]), int(run[-1]) + 1) for run in runs]
        )
        if len(found):
            self._log.bring_to_disk(int(found.physical_offsets[-1]) + int(found.sizes[-1]))
        return found

    def messages(self, entries: EntryColumns) -> list[StoredMessage | None]:
        """Return the messages of *entries*; None for a damaged record, which is logged."""

        def damaged(entry: EntryColumns, error: StoreError) -> None:
            place = f"{self._topic}/{self._queue_id}@{entry.queue_offsets[0]}"
            _LOG.error("the delayed message %s cannot be delivered: %s", place, error)

        return _read(entries, self.reader.messages, damaged)

    def find(self, offset: int) -> StoredMessage | None:
        """Return the message at a queue offset, after it is on disk, or None if there is none."""
        if not self._log.minimum() <= offset < self._log.visible():
            return None
        found = self.messages(self.entries(np.array([offset], np.int64)))
        return found[0] if found else None

    def sources(self, entries: EntryColumns) -> list[int]:
        """Return the offset from which each message was rolled; -1 where it was not."""
        return _read(entries, self._read_sources, lambda _entry, _error: -1)

    def due(self, entries: EntryColumns, now_ms: int) -> Due:
        """Return the due times of messages that are first seen at *now_ms*."""
        if self._topic == SCHEDULE_TOPIC:
            level = self._queue_id % LEVELS_A_DISK
            due_ms = entries.tags_codes
            waits_ms = np.full(len(entries), DELAY_LEVELS_MS[level], np.int64)
        else:
            parts = _read(entries, self._read_timers, _due_now)
            due_ms, waits_ms = (np.concatenate(column) for column in zip(*parts, strict=True))
        latest = now_ms + waits_ms
        # A message that was stored just now may be younger than now_ms, on a clock that never went
        # back.
        due_ms = np.where(due_ms > latest + CLOCK_STEP_MS, latest, due_ms)
        waits_s = (-(-waits_ms // 1000)).astype(np.int32)
        return Due(due_ms, entries.queue_offsets.copy(), waits_s)

    def _read_sources(self, entries: EntryColumns) -> Iterator[int]:
        found = self.reader.find_properties(entries, (TIMER_ROLLED_FROM,))
        for data, starts, sizes in found:
            yield from _numbers(data, starts[0], sizes[0]).tolist()

    def _read_timers(self, entries: EntryColumns) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield the due time and the longest wait of each message, in ms."""
        for data, starts, sizes in self.reader.find_properties(entries, _TIMER_PROPERTIES):
            columns = zip(starts, sizes, strict=True)
            deliver_ms, delay_ms, out_ms = (_numbers(data, *column) for column in columns)
            in_a_second = np.where(out_ms < 0, 0, out_ms + TIMER_PRECISION_MS)
            is_span = (delay_ms >= 0) & (delay_ms < DELAY_MAX_MS)
            yield (
                np.where(deliver_ms < 0, in_a_second, deliver_ms),
                np.where(is_span, delay_ms, DELAY_MAX_MS),
            )


def _due_now(_entry: EntryColumns, _error: StoreError) -> tuple[Int64s, Int64s]:
    """Return the times of a message with a damaged record, which is reported when it is read."""
    return np.zeros(1, np.int64), np.full(1, DELAY_MAX_MS)


def _read(
    entries: EntryColumns,
    read: Callable[[EntryColumns], Iterable[_Read]],
    damaged: Callable[[EntryColumns, StoreError], _Read],
) -> list[_Read]:
    """Return what *read* finds in the messages of *entries*, and *damaged* for a damaged record."""
    try:
        return [*read(entries)]
    except StoreError as error:
        if len(entries) == 1:
            return [damaged(entries, error)]
        # It does not say which record is damaged.
        rows = (entries.select(slice(row, row + 1)) for row in range(len(entries)))
        return [found for row in rows for found in _read(row, read, damaged)]


def _numbers(data: npt.NDArray[np.uint8], starts: Int64s, sizes: Int64s) -> Int64s:
    """Return the decimal numbers in spans of *data*; -1 where a span has none."""
    is_number = (sizes > 0) & (sizes <= _DIGITS_MAX)
    values = np.zeros(len(starts), np.int64)
    for place in range(int(sizes[is_number].max(initial=0))):
        has_digit = is_number & (place < sizes)
        digits = data[np.where(has_digit, starts + place, 0)].astype(np.int64) - ord("0")
        is_number &= ~has_digit | ((digits >= 0) & (digits <= 9))
        values = np.where(has_digit, 10 * values + digits, values)
    return np.where(is_number, values, -1)
