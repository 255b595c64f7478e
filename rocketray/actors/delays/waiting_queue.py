"""One queue of delayed messages: those that wait, with their due times, and those done.

The log has the stored messages and their due times, the marks beside it have those done. The
waiting messages are read from both at the start, and from the log as it grows; 20 bytes per message
are in memory.

Two clocks disagree if one was set back. So a message is due at the latest when its delay has passed
since it was first seen here: never early, and never much too late.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rocketray.actors.topics.old_files import old_files
from rocketray.delay import (
    DELAY_LEVELS_MS,
    DELAY_MAX_MS,
    SCHEDULE_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_PRECISION_MS,
    TIMER_ROLLED_FROM,
    TIMER_TOPIC,
)
from rocketray.errors import StoreError
from rocketray.message import ForwardedMessage, StoredMessage
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.reading.reader import EntryColumns, QueueReader

from .done_marks import DoneMarks
from .due_times import Due, DueTimes

__all__ = ["CLOCK_STEP_MS", "WaitingLog", "WaitingQueue"]

_LOG = logging.getLogger(__name__)
_BLOCK_ENTRIES = 8192
_ROLL_ENTRIES, _ROLL_BATCH = 4096, 64  # bodies may be inflated to 4 MiB each
CLOCK_STEP_MS = 1000  # a clock that went back by less counts as unchanged
_MARKS = "done"
_TIMER_PROPERTIES = (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_OUT_MS)
_DIGITS_MAX = 18  # of milliseconds in an int64
_Int64s = npt.NDArray[np.int64]


class WaitingLog(Protocol):
    """The shard that holds the messages."""

    @property
    def directory(self) -> Path:
        """Its store directory."""
        ...

    def minimum(self) -> int:
        """Return the first queue offset that still exists."""
        ...

    def visible(self) -> int:
        """Return the queue offset behind the last message."""
        ...

    def bring_to_disk(self, physical_end: int) -> None:
        """Return when everything before that physical offset is on disk."""
        ...

    @property
    def segment_bytes(self) -> int:
        """The size of a file of its log."""
        ...

    def append(self, messages: Sequence[ForwardedMessage]) -> bool:
        """Store messages, on disk when this returns; False if they cannot be stored now."""
        ...

    def query(self, unique_key: str) -> Sequence[StoredMessage]:
        """Return the messages with that unique key."""
        ...


class WaitingQueue:
    """The messages of one delay level, or those with a delivery time. For one thread at a time."""

    def __init__(
        self,
        log: WaitingLog,
        topic: str,
        queue_id: int,
        *,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Open the queue and its marks; :meth:`refresh` reads the waiting messages."""
        self.topic = topic
        self.queue_id = queue_id
        self.log = log
        self._reader = QueueReader(log.directory, topic, queue_id, file_system=file_system)
        self._marks = DoneMarks(log.directory / _MARKS, log.minimum(), file_system=file_system)
        self._times = DueTimes()
        self._next = self._marks.first_open(log.visible())

    def __len__(self) -> int:
        return len(self._times)

    def refresh(self, now_ms: int) -> None:
        """Read the messages that were stored since the last call."""
        self._next = max(self._next, self.log.minimum())
        for stop, entries in self._unread():
            if len(entries):
                self._times.add(self._due(entries, now_ms))
                self._finish_rolling(entries)
            self._next = stop

    def finish_rolling(self) -> None:
        """Ensure that no message waits twice, if a crash came and :meth:`refresh` not yet."""
        for _, entries in self._unread():
            self._finish_rolling(entries)

    def roll(self, but: Collection[int]) -> int:
        """Store waiting messages of old files again, if most of these is done; return how many.

        So a message that waits for a month does not keep the files of all later ones. At least half
        of the space of those files is freed. The copy is on disk before its original is marked as
        done; if a crash left only the copy, :meth:`refresh` sets the mark. Messages in *but* stay.
        One call rolls no more than deliveries can wait for; call again until it returns 0.
        """
        minimum = self.log.minimum()
        first, cut = old_files(self._reader, minimum, self._next, self.log.segment_bytes)
        if cut is None:
            return 0
        waiting, sizes = self._open_before(cut.queue_offset)
        if 2 * sizes.sum() > cut.physical_offset - first.physical_offset:
            return 0
        chosen = np.flatnonzero(~np.isin(waiting, [*but]))[:_ROLL_ENTRIES]
        waiting, sizes = waiting[chosen], sizes[chosen]
        by_size = np.diff(np.cumsum(sizes) // max(self.log.segment_bytes // 4, 1))
        by_count = np.diff(np.arange(len(waiting)) // _ROLL_BATCH)
        count = 0
        for part in np.split(waiting, np.flatnonzero(by_size | by_count) + 1):
            found = self.messages(self.entries(part)) if len(part) else []
            messages = [one for one in found if one is not None]
            if not messages or not self.log.append([_rolled(one) for one in messages]):
                break
            self.finish(np.array([one.queue_offset for one in messages], np.int64))
            count += len(messages)
        self._times.drop(self.are_done)
        return count

    def rolled(self, unique_key: str) -> int | None:
        """Return the offset where a rolled message waits, or None."""
        for found in self.log.query(unique_key):
            offset = found.queue_offset
            if TIMER_ROLLED_FROM in found.properties and not self.are_done(np.array([offset]))[0]:
                return int(offset)
        return None

    def limit_waits(self, now_ms: int) -> None:
        """Limit each wait to the message's longest: the clock was set back to *now_ms*."""
        self._times.limit_waits(now_ms)

    def next_ms(self) -> int | None:
        """Return the due time of the next message; None if none waits."""
        return self._times.next_ms()

    def take(self, now_ms: int, limit: int) -> Due:
        """Take the first messages that are due and not done; at most *limit*."""
        return self._times.take(now_ms, limit)

    def put_back(self, due: Due) -> None:
        """Return messages that were taken and not sent to the waiting ones."""
        self._times.add(due)

    def are_done(self, offsets: _Int64s) -> npt.NDArray[np.bool_]:
        """Return for each message whether it was delivered or recalled."""
        return self._marks.of(offsets)

    def finish(self, offsets: _Int64s) -> None:
        """Mark messages as delivered, or never to be; the marks are on disk when this returns."""
        self._marks.mark(offsets)

    def entries(self, offsets: _Int64s) -> EntryColumns:
        """Return the queue entries of messages, by offset, after they are on disk."""
        offsets = np.sort(offsets)
        breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
        runs = [run for run in np.split(offsets, breaks) if len(run)]
        found = EntryColumns.concatenated(
            [self._reader.entries(int(run[0]), int(run[-1]) + 1) for run in runs]
        )
        if len(found):
            self.log.bring_to_disk(int(found.physical_offsets[-1]) + int(found.sizes[-1]))
        return found

    def messages(self, entries: EntryColumns) -> list[StoredMessage | None]:
        """Return the messages of *entries*; None for a damaged record, which is logged."""
        try:
            return [*self._reader.messages(entries)]
        except StoreError as error:
            if len(entries) == 1:
                place = f"{self.topic}/{self.queue_id}@{entries.queue_offsets[0]}"
                _LOG.error("the delayed message %s cannot be delivered: %s", place, error)
                return [None]
            one_by_one = (entries.select(slice(row, row + 1)) for row in range(len(entries)))
            return [self.messages(entry)[0] for entry in one_by_one]

    def find(self, offset: int) -> StoredMessage | None:
        """Return the message at a queue offset, after it is on disk, or None if there is none."""
        if not self.log.minimum() <= offset < self.log.visible():
            return None
        return self.messages(self.entries(np.array([offset], np.int64)))[0]

    def first_open(self) -> int:
        """Return the first queue offset not done, or the end; messages before it may be removed."""
        return self._marks.first_open(self._next)

    def let_go(self) -> None:
        """Unmap files, and remove marks, of messages that are done."""
        first = self.first_open()
        self._marks.forget_before(first)
        if first < self._next:
            self._reader.let_go_before(first)

    def close(self) -> None:
        """Unmap everything."""
        self._reader.close()
        self._marks.close()

    def _unread(self) -> Iterator[tuple[int, EntryColumns]]:
        """Yield blocks that :meth:`refresh` has not seen, without done messages, and their ends."""
        first, end = max(self._next, self.log.minimum()), self.log.visible()
        for at in range(first, end, _BLOCK_ENTRIES):
            stop = min(at + _BLOCK_ENTRIES, end)
            yield stop, self._reader.entries(at, stop).select(~self._marks.are_done(at, stop))

    def _open_before(self, offset: int) -> tuple[_Int64s, _Int64s]:
        """Return the messages before *offset* that are not done, and their record sizes."""
        parts, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for at in range(self.first_open(), offset, _BLOCK_ENTRIES):
            stop = min(at + _BLOCK_ENTRIES, offset)
            entries = self._reader.entries(at, stop).select(~self._marks.are_done(at, stop))
            parts.append(entries.queue_offsets.copy())
            sizes.append(entries.sizes.astype(np.int64))
        return np.concatenate(parts), np.concatenate(sizes)

    def _finish_rolling(self, entries: EntryColumns) -> None:
        """Mark the originals of the copies among *entries*, if a crash came before that."""
        if self.topic != TIMER_TOPIC or not len(entries):
            return
        for number, source in enumerate(self._sources(entries)):
            at = np.array([source], np.int64)
            if 0 <= source < entries.queue_offsets[number] and not self.are_done(at)[0]:
                copy = self.messages(entries.select(slice(number, number + 1)))[0]
                before = self.find(source)
                if copy is None or before is None or copy.unique_key != before.unique_key:
                    continue
                self.log.bring_to_disk(copy.physical_offset + copy.size)
                self.finish(at)
                self._times.drop(self.are_done)

    def _sources(self, entries: EntryColumns) -> list[int]:
        try:
            return [
                number
                for data, starts, sizes in self._reader.find_properties(
                    entries, (TIMER_ROLLED_FROM,)
                )
                for number in _numbers(data, starts[0], sizes[0]).tolist()
            ]
        except StoreError:
            if len(entries) == 1:
                return [-1]
            one_by_one = (entries.select(slice(row, row + 1)) for row in range(len(entries)))
            return [self._sources(entry)[0] for entry in one_by_one]

    def _due(self, entries: EntryColumns, now_ms: int) -> Due:
        if self.topic == SCHEDULE_TOPIC:
            level = min(self.queue_id, len(DELAY_LEVELS_MS) - 1)
            due_ms = entries.tags_codes
            waits_ms = np.full(len(entries), DELAY_LEVELS_MS[level], np.int64)
        else:
            due_ms, waits_ms = self._timers(entries)
        latest = now_ms + waits_ms
        # A message that was stored just now may be younger than now_ms, on a clock that never went
        # back.
        due_ms = np.where(due_ms > latest + CLOCK_STEP_MS, latest, due_ms)
        waits_s = (-(-waits_ms // 1000)).astype(np.int32)
        return Due(due_ms, entries.queue_offsets.copy(), waits_s)

    def _timers(self, entries: EntryColumns) -> tuple[_Int64s, _Int64s]:
        """Return the due time and the longest wait of each message, in ms.

        A message with a damaged record is due now; the damage is reported when it is read.
        """
        try:
            parts = [*self._read_timers(entries)]
        except StoreError:
            if len(entries) == 1:
                return np.zeros(1, np.int64), np.full(1, DELAY_MAX_MS)
            one_by_one = (entries.select(slice(row, row + 1)) for row in range(len(entries)))
            parts = [self._timers(entry) for entry in one_by_one]
        due_ms, waits_ms = (np.concatenate(column) for column in zip(*parts, strict=True))
        return due_ms, waits_ms

    def _read_timers(self, entries: EntryColumns) -> Iterator[tuple[_Int64s, _Int64s]]:
        for data, starts, sizes in self._reader.find_properties(entries, _TIMER_PROPERTIES):
            columns = zip(starts, sizes, strict=True)
            deliver_ms, delay_ms, out_ms = (_numbers(data, *column) for column in columns)
            in_a_second = np.where(out_ms < 0, 0, out_ms + TIMER_PRECISION_MS)
            is_span = (delay_ms >= 0) & (delay_ms < DELAY_MAX_MS)
            yield (
                np.where(deliver_ms < 0, in_a_second, deliver_ms),
                np.where(is_span, delay_ms, DELAY_MAX_MS),
            )


def _rolled(waiting: StoredMessage) -> ForwardedMessage:
    properties = {**waiting.properties, TIMER_ROLLED_FROM: str(waiting.queue_offset)}
    return ForwardedMessage.of(waiting, topic=waiting.topic, properties=properties)


def _numbers(data: npt.NDArray[np.uint8], starts: _Int64s, sizes: _Int64s) -> _Int64s:
    """Return the decimal numbers in spans of *data*; -1 where a span has none."""
    is_number = (sizes > 0) & (sizes <= _DIGITS_MAX)
    values = np.zeros(len(starts), np.int64)
    for place in range(int(sizes[is_number].max(initial=0))):
        has_digit = is_number & (place < sizes)
        digits = data[np.where(has_digit, starts + place, 0)].astype(np.int64) - ord("0")
        is_number &= ~has_digit | ((digits >= 0) & (digits <= 9))
        values = np.where(has_digit, 10 * values + digits, values)
    return np.where(is_number, values, -1)
