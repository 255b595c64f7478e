"""A check of everything in a store, without changes: do log, queues and index agree?

The log is read from its first to its last byte, as recovery reads it. Every record must have its
queue entry and its keys, every entry and every key must point to its record, and there must be
nothing behind the ends. Each violation is a :class:`Problem`, with file and place.

Topic, properties and most of a record's header have no checksum in RocketMQ's format (unless the
store appends a CRC over all of a record). Damage there is found only where it contradicts another
file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.base.config import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from rocketray.base.quantity import agreed, counted
from rocketray.kernels.layout import TAGS_CODE_EXT_MAX
from rocketray.store.files.checkpoint import Checkpoint
from rocketray.store.files.mapped_file_queue import segment_name
from rocketray.store.index.index_division import expected_chains
from rocketray.store.index.index_file import INDEX_ENTRY, IndexFile
from rocketray.store.index.key_index import KeyIndex
from rocketray.store.log.commit_log import CommitLog
from rocketray.store.log.log_blocks import (
    LogBlock,
    read_blocks_below,
    read_past_holes,
    record_keys,
)
from rocketray.store.log.log_walk import bytes_behind, end_after
from rocketray.store.queues.consume_queue import ConsumeQueue
from rocketray.store.queues.queue_table import QueueTable

from .problem import Problem

_SHOWN_OF_A_KIND = 20  # problems per queue or index file; the rest is counted
_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Verification:
    """The numbers of checked items, and the problems found."""

    log_files: int
    queue_files: int
    index_files: int
    records: int
    queue_entries: int
    keys: int
    problems: tuple[Problem, ...]


def verify(
    log: CommitLog, queues: QueueTable, index: KeyIndex, checkpoint: Checkpoint
) -> Verification:
    """Check a store as it is opened; also works on a read-only store."""
    marks = [_Marks(queue) for queue in queues.all()]
    walk = _Walk(log, {id(mark.queue): mark for mark in marks}, queues)
    keys = _Keys(log, index)
    for block in walk.blocks():
        walk.check_entries(block)
        keys.check(block)
    walk.check_end(checkpoint)
    for mark in marks:
        walk.problems += mark.leftovers(log)
    walk.problems += keys.leftovers()
    for file in index.files:
        walk.problems += _chain_problems(file)
    return Verification(
        log_files=len(log.files.starts),
        queue_files=sum(len(mark.queue.files.starts) for mark in marks),
        index_files=len(index.files),
        records=walk.records,
        queue_entries=sum(
            mark.queue.gaps.count(mark.queue.min_offset, mark.queue.max_offset) for mark in marks
        ),
        keys=index.entry_count(),
        problems=tuple(walk.problems),
    )


def index_agrees(log: CommitLog, index: KeyIndex, end: int) -> bool:
    """Return whether the index holds the keys of all records below *end* and nothing else."""
    keys = _Keys(log, index)
    for block in read_blocks_below(log, end):
        keys.check(block)
    return not keys.leftovers() and not any(map(_chain_problems, index.files))


@dataclass(slots=True)
class _Walk:
    """One pass over the log, record by record."""

    log: CommitLog
    marks: dict[int, _Marks]
    queues: QueueTable
    records: int = 0
    end: int = 0
    last_timestamp_ms: int = 0
    problems: list[Problem] = field(default_factory=list)

    def blocks(self) -> Iterator[LogBlock]:
        self.end = int(self.log.min_offset)
        for block in read_past_holes(self.log, self.end, self.skips):
            self.records += len(block)
            self.last_timestamp_ms = int(block.store_timestamps_ms[-1])
            self.end = block.end
            yield block
        self.end = end_after(self.log.files, self.end)

    def skips(self, start: int, behind: int, _store_timestamp_ms: int) -> bool:
        self.problem(start, f"these {behind - start} bytes have no complete record")
        self.end = behind
        return True

    def problem(self, physical_offset: int, what: str) -> None:
        start = physical_offset - physical_offset % self.log.files.segment_bytes
        path = self.log.files.directory / segment_name(start)
        self.problems.append(Problem(str(path), physical_offset - start, what))

    def check_entries(self, block: LogBlock) -> None:
        for topic, queue_id, chosen in block.by_queue():
            queue = self.queues.find(topic, queue_id)
            good = np.zeros(len(chosen), np.bool_)
            if queue is not None:
                good = self.marks[id(queue)].check(chosen)
            for row in np.flatnonzero(~good)[:_SHOWN_OF_A_KIND].tolist():
                self.problem(
                    int(chosen.physical_offsets[row]),
                    f"the record has no entry at offset {chosen.queue_offsets[row]} of queue "
                    f"{topic}/{queue_id}",
                )

    def check_end(self, checkpoint: Checkpoint) -> None:
        stray = bytes_behind(self.log.files, self.end)
        if stray:
            self.problem(self.end, f"{stray} bytes follow the last complete record")
        if self.records and checkpoint.log_timestamp_ms > self.last_timestamp_ms:
            self.problem(
                self.end,
                f"the checkpoint covers records up to time {checkpoint.log_timestamp_ms}; the "
                f"last one is of {self.last_timestamp_ms}",
            )


class _Marks:
    """The entries of a queue for which a record was found."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self._first = queue.min_offset
        self._met: _Bools = np.zeros(queue.max_offset - queue.min_offset, np.bool_)
        for start, stop in queue.gaps.between(queue.min_offset, queue.max_offset):
            self._met[start - self._first : stop - self._first] = True

    def check(self, block: LogBlock) -> _Bools:
        """Return which records of *block*, all of this queue, have their entry."""
        numbers = block.queue_offsets - self._first
        good: _Bools = (numbers >= 0) & (numbers < len(self._met))
        rows = np.flatnonzero(good)
        if not len(rows):
            return good
        first, last = int(block.queue_offsets[rows].min()), int(block.queue_offsets[rows].max())
        offsets, sizes, codes = self.queue.columns(first, last + 1)
        at = block.queue_offsets[rows] - first
        matching = (offsets[at] == block.physical_offsets[rows]) & (sizes[at] == block.sizes[rows])
        same_code = codes[at] == block.tags_codes[rows]
        for row in np.flatnonzero(matching & ~same_code & (codes[at] <= TAGS_CODE_EXT_MAX)):
            unit = self.queue.ext.unit(int(codes[at[row]])) if self.queue.ext else None
            same_code[row] = unit is not None and unit.tags_code == block.tags_codes[rows[row]]
        good[rows] = matching & same_code
        self._met[numbers[good]] = True
        return good

    def leftovers(self, log: CommitLog) -> Iterator[Problem]:
        """Yield entries without a record, and content behind the last one."""
        lost = np.flatnonzero(~self._met)
        for number in lost[:_SHOWN_OF_A_KIND].tolist():
            yield self._problem(self._first + number, "the entry points to no record of this queue")
        if len(lost) > _SHOWN_OF_A_KIND:
            more = len(lost) - _SHOWN_OF_A_KIND
            what = f"{counted(more, 'more entry')} {agreed(more, 'point')} to no record"
            yield self._problem(self._first, what)
        end = self.queue.max_offset
        offsets, sizes, codes = self.queue.columns(end, self.queue.files.end // ENTRY_BYTES)
        stray = np.flatnonzero((offsets != 0) | (sizes != 0) | (codes != 0))
        if len(stray):
            where = end + int(stray[0])
            count = len(stray)
            what = f"{counted(count, 'entry')} {agreed(count, 'follow')} the last one of a record"
            yield self._problem(where, f"{what}; the log ends at {log.max_offset}")

    def _problem(self, queue_offset: int, what: str) -> Problem:
        entries = self.queue.segment_entries
        start = queue_offset - queue_offset % entries
        path: Path = self.queue.files.directory / segment_name(start * ENTRY_BYTES)
        return Problem(
            str(path), (queue_offset - start) * ENTRY_BYTES, f"offset {queue_offset}: {what}"
        )


class _Keys:
    """The keys of the log against the entries of the index, both in the log's order."""

    def __init__(self, log: CommitLog, index: KeyIndex) -> None:
        self._index = index
        tables = [file.table()[1] for file in index.files]
        entries = np.concatenate([np.empty(0, INDEX_ENTRY), *tables])
        self._hashes = entries["hash"].astype(np.int32)
        self._offsets = entries["physical_offset"].astype(np.int64)
        self._next = int((self._offsets < log.min_offset).sum())  # of deleted files
        self._problems: list[Problem] = []

    def check(self, block: LogBlock) -> None:
        """Check that the keys of *block* come next."""
        if self._problems:
            return
        hashes, offsets, _ = record_keys(block)
        stop = self._next + len(hashes)
        known_hashes = self._hashes[self._next : stop]
        known_offsets = self._offsets[self._next : stop]
        count = len(known_hashes)
        wrong = np.flatnonzero(
            (known_hashes != hashes[:count]) | (known_offsets != offsets[:count])
        )
        if len(wrong) or count < len(hashes):
            row = int(wrong[0]) if len(wrong) else count
            what = f"the key with hash {hashes[row]} of the record at {offsets[row]} is missing"
            self._problems.append(self._problem(self._next + row, what))
        self._next = stop

    def leftovers(self) -> list[Problem]:
        """Return the first key that is missing or different, or keys of no record."""
        if not self._problems and self._next < len(self._hashes):
            count = len(self._hashes) - self._next
            what = f"{counted(count, 'key')} {agreed(count, 'belong')} to no record"
            return [self._problem(self._next, what)]
        return self._problems

    def _problem(self, number: int, what: str) -> Problem:
        path, position = "index", 0
        for file in self._index.files:
            path, count = str(file.path), file.header().next_entry - 1
            position = file.entry_position(min(number, count) + 1)
            if number < count:
                break
            number -= count
        return Problem(path, position, what)


def _chain_problems(file: IndexFile) -> list[Problem]:
    """Return slots and predecessors that differ from putting the entries one by one."""
    slots, entries = file.table()
    count = len(entries)
    hashes = entries["hash"].astype(np.int64)
    if count and hashes.min() < 0:
        row = int((hashes < 0).argmax())
        return [Problem(str(file.path), file.entry_position(row + 1), "its key hash is negative")]
    previous, last_of_slots = expected_chains(hashes, file.hash_slots)
    problems = [
        Problem(
            str(file.path),
            file.entry_position(row + 1),
            f"the previous entry of its slot is {previous[row]}, and it names "
            f"{entries['previous'][row]}",
        )
        for row in np.flatnonzero(entries["previous"] != previous)[:_SHOWN_OF_A_KIND].tolist()
    ]
    newest = np.zeros(file.hash_slots, np.int64)
    newest[hashes[last_of_slots - 1] % file.hash_slots] = last_of_slots
    problems += [
        Problem(
            str(file.path),
            file.slot_position(slot),
            f"the newest entry of slot {slot} is {newest[slot]}, and the slot names {slots[slot]}",
        )
        for slot in np.flatnonzero(slots != newest)[:_SHOWN_OF_A_KIND].tolist()
    ]
    used = int(np.count_nonzero(newest))
    if file.header().slots_used != used:
        counts = counted(file.header().slots_used, "slot")
        what = f"its header counts {counts} in use, and the true number is {used}"
        problems.append(Problem(str(file.path), 32, what))  # its place in the header
    return problems
