"""Replay of a log, from one place to its end, so that queues and index agree with it.

The end is the first place without a whole record, unless the caller vouches for later
records: then the place is a *hole*. It is skipped and reported, and the queue offsets of its
messages get entries that point into it, to no record, so that a consumer skips them too.

Queue offsets have no checksum. Where they jump, the records after the jump are trusted if the
missing ones could have been between. If the later ones continue as if there had been no jump, the
record itself is damaged, and a hole like any other.

They also jump at a gap, which recovery left (queue_gaps.py). A gap that is not known is found again
when all of the log is read: so many records could not have been between.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np
import numpy.typing as npt

from rocketray.base.quantity import agreed, counted
from rocketray.kernels.layout import RECORD_MIN_BYTES
from rocketray.store.index.key_index import KeyIndex
from rocketray.store.log.commit_log import CommitLog
from rocketray.store.log.log_blocks import (
    LogBlock,
    read_blocks_below,
    read_past_holes,
    record_keys,
)
from rocketray.store.log.log_walk import end_after
from rocketray.store.queues.consume_queue import HOLE_SIZE, ConsumeQueue
from rocketray.store.queues.gap_ranks import ranks_of
from rocketray.store.queues.queue_recovery import continue_at, last_before, put_entries
from rocketray.store.queues.queue_table import QueueTable


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes of the log, from ``start`` up to ``end``, without a valid record."""

    start: int
    end: int
    reason: str


class QueueGapError(Exception):
    """A queue lacks entries from before the replayed part of the log."""


class Replay:
    """One replay of the log. Its counters report the changes."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex | None,
        *,
        keys_after: tuple[int, int],
        vouched_until_ms: int,
        vouched_below: int = 0,
    ) -> None:
        """Put keys from the record at the first of *keys_after* on, without so many of it.

        Without *index* no keys are put.

        Records stored before *vouched_until_ms*, or that begin below the offset *vouched_below*,
        are known to have been whole once.
        """
        self._log = log
        self._queues = queues
        self._index = index
        self._keys_from, self._keys_there = keys_after
        self._vouched_until_ms = vouched_until_ms
        self._vouched_below = vouched_below
        self._begun: set[int] = set()
        self.start = self.end = self.last_timestamp_ms = 0
        self.unsure_from: int | None = None
        """The offset of the first record that may not be on disk; None if there is none."""
        self.put_from: dict[int, int] = {}
        """For each queue with a record, by ``id``, the first queue offset that is not trusted."""
        self.records = self.entries = self.keys = 0
        self.holes: list[Hole] = []

    def run(self, start: int) -> None:
        """Replay from *start*, the offset of a record or of a file.

        Raises:
            QueueGapError: entries are missing whose records are before *start*.
            StoreFullError: there is no space for entries or keys.
        """
        self.start = self.end = start
        # What the queues lost may be of records before *start*.
        lost = any(queue.has_lost_units or queue.lost_end for queue in self._queues.all())
        if lost and start > self._log.min_offset:
            raise QueueGapError
        for block in read_past_holes(self._log, start, self._skips):
            for topic, queue_id, chosen in block.by_queue():
                self._put_queue(topic, self._queues.get(topic, queue_id), chosen)
            if self._index is not None:
                self._put_keys(self._index, block)
            late = np.flatnonzero(block.store_timestamps_ms >= self._vouched_until_ms)
            if self.unsure_from is None and len(late):
                self.unsure_from = int(block.physical_offsets[late[0]])
            self.records += len(block)
            self.end = block.end
            self.last_timestamp_ms = int(block.store_timestamps_ms[-1])
        self.end = end_after(self._log.files, self.end)

    def _skips(self, start: int, behind: int, store_timestamp_ms: int) -> bool:
        """Add a hole, unless the record *behind* it may never have been whole."""
        if behind >= self._vouched_below and store_timestamp_ms >= self._vouched_until_ms:
            return False
        # The record behind the last hole did not pass all checks, so the two are one hole.
        if self.holes and self.holes[-1].end == start:
            start = self.holes.pop().start
        self.holes.append(Hole(start, behind, "there is no complete record"))
        self.end = behind
        return True

    def _put_queue(self, topic: str, queue: ConsumeQueue, block: LogBlock) -> None:
        """Put the entries of records of one queue, a run of consecutive queue offsets at a time."""
        runs = _runs(block.queue_offsets)
        # Where the log is read from its begin, a queue's first record tells where the queue begins.
        if self.start <= self._log.min_offset and id(queue) not in self._begun:
            self._begun.add(id(queue))
            self._begin(queue, block)
        self.put_from.setdefault(id(queue), queue.max_offset)
        for (first, end), following in zip_longest(runs, runs[1:]):
            begins_at = int(block.queue_offsets[first])
            resumes_at = int(block.queue_offsets[following[0]]) if following else -1
            queue.max_offset = queue.gaps.after(queue.max_offset)
            if begins_at > queue.max_offset and resumes_at == queue.max_offset + end - first:
                self._misplaced(block, first, end)  # the next ones continue as if these were right
            else:
                self._put_run(topic, queue, block, first, end)

    def _begin(self, queue: ConsumeQueue, block: LogBlock) -> None:
        """Begin *queue* with the first record of the log that is its own.

        If that record's offset does not lead to the next ones', theirs are trusted.
        """
        # Ranks, because a known gap between two records is no jump.
        ranks = ranks_of(np.maximum(block.queue_offsets, 0), queue.gaps)
        first = next((first for first, end in _runs(ranks) if end - first > 1), 0)
        begins_at = queue.gaps.back(int(block.queue_offsets[first]) + 1, first + 1)
        if ranks[first] >= first and begins_at != queue.max_offset:
            queue.restart_at(begins_at)

    def _put_run(
        self, topic: str, queue: ConsumeQueue, block: LogBlock, first: int, end: int
    ) -> None:
        """Put the entries *first* to *end*, whose queue offsets follow each other."""
        begins_at = int(block.queue_offsets[first])
        missing = begins_at - queue.max_offset
        if missing > 0 and not self._fill(queue, begins_at, int(block.physical_offsets[first])):
            # Recovery's gaps are at most the unflushed messages and as many that were cut: a larger
            # jump is damage in the record.
            if missing > 2 * queue.unflushed_max:
                self._misplaced(block, first, end)
                return
            continue_at(queue, begins_at)
        if missing < 0:  # RocketMQ's redispatch: existing entries are not put again
            existing = min(-missing, end - first)
            offsets, _, _ = queue.columns(begins_at, begins_at + existing)
            if not np.array_equal(offsets, block.physical_offsets[first : first + existing]):
                self._misplaced(block, first, first + existing)
            first += existing
        if first < end:
            self.entries += put_entries(
                queue,
                block.physical_offsets[first:end],
                block.sizes[first:end],
                block.tags_codes[first:end],
                block.store_timestamps_ms[first:end],
                bitmaps=self._queues.bitmaps(
                    topic,
                    block.data,
                    block.property_starts[first:end],
                    block.property_sizes[first:end],
                ),
            )

    def _fill(self, queue: ConsumeQueue, begins_at: int, before: int) -> bool:
        """Put entries up to *begins_at* for messages lost in a hole; return False if none can be.

        They point into the hole, one byte further each, so that entries still ascend.
        """
        # Nothing is missing in the part that was read, so it is missing before it.
        if self.start > self._log.min_offset and not self.holes:
            raise QueueGapError
        count = queue.gaps.count(queue.max_offset, begins_at)
        last = last_before(queue, queue.max_offset)
        after = self._log.min_offset if last is None else last.physical_offset + last.size
        if count > (before - after) // RECORD_MIN_BYTES:
            return False  # so many records do not fit between
        holes = [hole for hole in self.holes if after <= hole.start < before]
        if not holes:
            # No hole is known there, so it is whole records whose queue or queue offset is wrong.
            are = agreed(count, "are")
            what = f"{counted(count, 'message')} of one queue {are} missing here"
            holes = [Hole(after, before, what)]
            self.holes += holes
        offsets = holes[0].start + np.arange(count, dtype=np.int64)
        sizes: npt.NDArray[np.int32] = np.full(count, HOLE_SIZE, np.int32)
        nothing = np.zeros(count, np.int64)
        for start, stop in list(queue.gaps.outside(queue.max_offset, begins_at)):
            queue.max_offset, part = start, slice(stop - start)
            self.entries += put_entries(
                queue, offsets[part], sizes[part], nothing[part], nothing[part]
            )
            offsets = offsets[stop - start :]
        queue.max_offset = begins_at
        return True

    def _misplaced(self, block: LogBlock, first: int, end: int) -> None:
        """Report records with a wrong queue id or queue offset."""
        if self.start > self._log.min_offset:
            raise QueueGapError
        for row in range(first, end):
            start = int(block.physical_offsets[row])
            reason = f"its queue offset {block.queue_offsets[row]} does not follow its queue's"
            self.holes.append(Hole(start, start + int(block.sizes[row]), reason))

    def _put_keys(self, index: KeyIndex, block: LogBlock) -> None:
        hashes, offsets, times = record_keys(block.only(block.physical_offsets >= self._keys_from))
        # The last indexed record may have been given only some of its keys.
        if len(offsets) and offsets[0] == self._keys_from:
            there = min(self._keys_there, int((offsets == self._keys_from).sum()))
            hashes, offsets, times = hashes[there:], offsets[there:], times[there:]
        index.reserve(len(hashes))
        index.put(hashes, offsets, times)
        self.keys += len(hashes)


def _runs(numbers: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the parts of *numbers* that ascend by one, as (first, end)."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    return list(pairwise([0, *breaks.tolist(), len(numbers)]))


def put_keys(log: CommitLog, index: KeyIndex, end: int) -> int:
    """Put the keys of all records below *end* into an empty index; return their number.

    Raises:
        StoreFullError: there is no space for them.
    """
    count = 0
    for block in read_blocks_below(log, end):
        keys = record_keys(block)
        index.reserve(len(keys[0]))
        index.put(*keys)
        count += len(keys[0])
    return count
