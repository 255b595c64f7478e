"""One queue of delayed messages: those that wait, with their due times, and those done.

The log has the stored messages and their due times, the marks beside it have those done. The
waiting messages are read from both at the start, and from the log as it grows; 20 bytes per message
are in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt

from rocketray.base.marks import TIMER_ROLLED_FROM
from rocketray.base.system_topics import TIMER_TOPIC
from rocketray.broker.topics.old_files import old_files
from rocketray.message import ForwardedMessage, StoredMessage
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.reading.record_spans import EntryColumns

from .done_marks import DoneMarks
from .due_times import DueTimes
from .waiting_records import Int64s, WaitingLog, WaitingRecords

_BLOCK_ENTRIES = 8192  # 160 KiB of queue entries
# A call rolls 4,096 messages at most, as deliveries wait for it; in batches of 64, as their bodies
# may be inflated to 4 MiB each: 256 MiB in memory.
_ROLL_ENTRIES, _ROLL_BATCH = 4096, 64
_MARKS = "done"


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
        self.records = WaitingRecords(log, topic, queue_id, file_system)
        self._marks = DoneMarks(log.directory / _MARKS, log.minimum(), file_system=file_system)
        first_open = self._marks.first_open(log.visible())
        # An offset in a gap has no message, so nothing else would ever mark it: the files behind it
        # could not be removed.
        for start, stop in self.records.reader.gaps.between(first_open, log.visible()):
            self._marks.mark(np.arange(start, stop))
        self.times = DueTimes()
        """The due times of the messages that were read and wait."""
        self._next = self._marks.first_open(log.visible())

    def __len__(self) -> int:
        return len(self.times)

    def refresh(self, now_ms: int) -> None:
        """Read the messages that were stored since the last call."""
        self._next = max(self._next, self.log.minimum())
        for stop, entries in self._unread():
            if len(entries):
                self.times.add(self.records.due(entries, now_ms))
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
        first, cut = old_files(self.records.reader, minimum, self._next, self.log.segment_bytes)
        if cut is None:
            return 0
        waiting, sizes = self._open_before(cut.queue_offset)
        if 2 * sizes.sum() > cut.physical_offset - first.physical_offset:
            return 0
        chosen = np.flatnonzero(~np.isin(waiting, [*but]))[:_ROLL_ENTRIES]
        waiting, sizes = waiting[chosen], sizes[chosen]
        # A batch is in one file of the log, whose rest is left empty where it does not fit: with a
        # quarter of a file each, that is less than a quarter.
        by_size = np.diff(np.cumsum(sizes) // max(self.log.segment_bytes // 4, 1))
        by_count = np.diff(np.arange(len(waiting)) // _ROLL_BATCH)
        count = 0
        for part in np.split(waiting, np.flatnonzero(by_size | by_count) + 1):
            found = self.records.messages(self.records.entries(part)) if len(part) else []
            messages = [one for one in found if one is not None]
            if not messages or not self.log.append([_rolled(one) for one in messages]):
                break
            self.finish(np.array([one.queue_offset for one in messages], np.int64))
            count += len(messages)
        self.times.drop(self.are_done)
        return count

    def rolled(self, unique_key: str) -> int | None:
        """Return the offset where a rolled message waits, or None."""
        for found in self.log.query(unique_key):
            offset = found.queue_offset
            if TIMER_ROLLED_FROM in found.properties and not self.are_done(np.array([offset]))[0]:
                return int(offset)
        return None

    def are_done(self, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """Return for each message whether it was delivered or recalled."""
        return self._marks.of(offsets)

    def finish(self, offsets: Int64s) -> None:
        """Mark messages as delivered, or never to be; the marks are on disk when this returns."""
        self._marks.mark(offsets)

    def first_open(self) -> int:
        """Return the first queue offset not done, or the end; messages before it may be removed."""
        return self._marks.first_open(self._next)

    def let_go(self) -> None:
        """Unmap files, and remove marks, of messages that are done."""
        first = self.first_open()
        self._marks.forget_before(first)
        if first < self._next:
            self.records.reader.let_go_before(first)

    def close(self) -> None:
        self.records.reader.close()
        self._marks.close()

    def _unread(self) -> Iterator[tuple[int, EntryColumns]]:
        """Yield the blocks that :meth:`refresh` has not seen, as :meth:`_blocks`."""
        return self._blocks(max(self._next, self.log.minimum()), self.log.visible())

    def _blocks(self, first: int, end: int) -> Iterator[tuple[int, EntryColumns]]:
        """Yield the messages before *end* that are not done, with the end of each block."""
        for at in range(first, end, _BLOCK_ENTRIES):
            stop = min(at + _BLOCK_ENTRIES, end)
            entries = self.records.reader.entries(at, stop)
            yield stop, entries.select(~self._marks.of(entries.queue_offsets))

    def _open_before(self, offset: int) -> tuple[Int64s, Int64s]:
        """Return the messages before *offset* that are not done, and their record sizes."""
        parts, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for _, entries in self._blocks(self.first_open(), offset):
            parts.append(entries.queue_offsets.copy())
            sizes.append(entries.sizes.astype(np.int64))
        return np.concatenate(parts), np.concatenate(sizes)

    def _finish_rolling(self, entries: EntryColumns) -> None:
        """Mark the originals of the copies among *entries*, if a crash came before that."""
        if self.topic != TIMER_TOPIC or not len(entries):
            return
        for number, source in enumerate(self.records.sources(entries)):
            at = np.array([source], np.int64)
            if 0 <= source < entries.queue_offsets[number] and not self.are_done(at)[0]:
                copy = self.records.messages(entries.select(slice(number, number + 1)))[0]
                before = self.records.find(source)
                if copy is None or before is None or copy.unique_key != before.unique_key:
                    continue
                self.log.bring_to_disk(copy.physical_offset + copy.size)
                self.finish(at)
                self.times.drop(self.are_done)


def _rolled(waiting: StoredMessage) -> ForwardedMessage:
    properties = {**waiting.properties, TIMER_ROLLED_FROM: str(waiting.queue_offset)}
    return ForwardedMessage.of(waiting, topic=waiting.topic, properties=properties)
