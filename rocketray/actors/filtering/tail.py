"""The live tail of a topic: its messages as they are stored, with a filter's verdict on each.

A tail belongs to no group, moves no offset, and reads the queues' files itself, so the node has no
work with it. It follows a node through its restarts, and finds queues that are added.

Rules
  1. Messages that were stored when the tail began are all read. Of later ones, a reader that is
     more than ``BACKLOG_MAX`` messages behind in a queue leaves the oldest out: they are counted as
     ``skipped``, and no filter sees them. To a tail that resumes another, all are later ones.
  2. A reader with room for fewer messages than were found takes the newest of each step: the others
     are counted as ``unshown``, and in the filter's counters.
  3. Messages that were deleted before they were read are counted as ``missed``.

A tail belongs to one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import merge
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from rocketray.actors.files.paths import control_path, shard_directory
from rocketray.actors.ipc.control_page import control_of
from rocketray.actors.topics.queue_views import QueueView
from rocketray.errors import OffsetOutOfRangeError, ShardUnavailableError, StoreError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.filter_verdict import deciding_step, explain_filter
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import Subscription
from rocketray.filters.verdict_values import ExplainStep, FilterReason
from rocketray.message import StoredMessage
from rocketray.store.queues.gaps_file import gaps_of
from rocketray.store.reading.reader import EntryColumns, QueueReader

from .block_scan import BlockScan
from .filter_stream import RECORDS_MAX
from .scan_position import ScanPosition

__all__ = ["BACKLOG_MAX", "SeenMessage", "TailCounts", "TailStart", "TopicTail"]

_BLOCKS_MAX = 64  # of a queue in a step: 30 ms or so
BACKLOG_MAX = _BLOCKS_MAX * RECORDS_MAX  # of a queue: what a step with room can scan
_Bools = npt.NDArray[np.bool_]
_CHUNK_BYTES = 8 * 1024 * 1024  # of records that are objects at the same time


@dataclass(frozen=True, slots=True)
class TailStart:
    """Where a tail begins in each queue.

    ``latest`` is the end of the queue, ``earliest`` its begin, ``offset`` a queue offset, and
    ``time`` a store time in milliseconds since 1970, both in ``number``. ``resume`` continues a
    tail at its ``positions``; a queue that is not in them is new.
    """

    kind: Literal["latest", "earliest", "offset", "time", "resume"] = "latest"
    number: int = 0
    positions: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message and the filter's verdict; ``step`` is what left it out, None if it matched."""

    message: StoredMessage
    reason: FilterReason
    step: ExplainStep | None = None

    @property
    def is_match(self) -> bool:
        """Whether a group with the filter would get it."""
        return self.reason is FilterReason.MATCHED


@dataclass(frozen=True, slots=True)
class TailCounts:
    """The outcome of the messages since the tail began; see the module's rules.

    ``filter`` has the numbers of a group that consumed what was read. ``error`` is that of the
    first predicate call that failed.
    """

    filter: FilterCounters
    skipped: int
    unshown: int
    error: str


class TopicTail:
    """Reads what is new in the queues of a topic on one disk."""

    def __init__(
        self,
        data: Path,
        topic: str,
        subscription: Subscription,
        start: TailStart,
        *,
        with_rejected: bool = False,
        backlog_max: int = BACKLOG_MAX,
    ) -> None:
        """Open the queues of *topic* in the data directory of a node; read also what is rejected.

        Raises:
            FilterError: the subscription cannot be used.
            StoreError: there is no such topic.
        """
        self._data = data
        self._topic = topic
        self._filter = MessageFilter(subscription)
        self._scan = BlockScan(self._filter)
        self._with_rejected = with_rejected
        self._backlog_max = backlog_max
        self._queues: dict[int, _FollowedQueue] = {}
        self._missed = self._skipped = self._unshown = 0
        self._open(start)
        if not self._queues:
            raise self._no_topic()

    @property
    def queue_ids(self) -> list[int]:
        """The queues that are read."""
        return sorted(self._queues)

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each queue, where a tail can resume this one."""
        return {number: queue.position.next_offset for number, queue in self._queues.items()}

    @property
    def counts(self) -> TailCounts:
        """The sums so far."""
        counters = replace(self._scan.counters, missed=self._missed)
        return TailCounts(counters, self._skipped, self._unshown, self._scan.error)

    def look_for_queues(self) -> None:
        """Open queues that were added, from their begin; to be called every few seconds.

        Raises:
            StoreError: the topic was deleted.
        """
        for queue_id, queue in list(self._queues.items()):
            if not queue.is_there():
                queue.close()
                del self._queues[queue_id]
        self._open(TailStart("earliest"))
        if not self._queues:
            raise self._no_topic()

    def read(self, room: int | None = None) -> Iterator[SeenMessage]:
        """Yield what is new, a bounded part of each queue, by store time.

        *room* is the number of messages that the reader can take, None for all: then the parts are
        small. The iterator has to
        be exhausted before the next call.

        Raises:
            StoreError: files are damaged.
        """
        blocks = []
        left = room
        for count, queue in enumerate(self._queues.values()):
            share = None if left is None else -(-left // (len(self._queues) - count))
            picked, matches = self._step(queue, share)
            left = None if left is None else left - len(picked)
            blocks.append(self._seen(queue, picked, matches))
        yield from merge(*blocks, key=lambda each: each.message.store_timestamp_ms)

    def close(self) -> None:
        """Unmap the files."""
        for queue in self._queues.values():
            queue.close()
        self._queues.clear()

    def _open(self, start: TailStart) -> None:
        directory = shard_directory(self._data, self._topic, 0).parent
        there = {int(path.name) for path in directory.glob("*") if path.name.isdecimal()}
        for queue_id in sorted(there - self._queues.keys()):
            with suppress(ShardUnavailableError, FileNotFoundError):  # it is being created
                self._queues[queue_id] = _FollowedQueue(self._data, self._topic, queue_id, start)

    def _no_topic(self) -> StoreError:
        return StoreError(
            f"{self._data} has no topic {self._topic!r}; it may have been deleted: see: rocketray "
            "topics list"
        )

    def _step(self, queue: _FollowedQueue, room: int | None) -> tuple[EntryColumns, _Bools]:
        """Scan what is new in a queue; return the entries to show, and which of them match.

        Without a *room* it is one small block, so that nothing has to be left out.
        """
        entries, matches = EntryColumns.room_for(0), np.empty(0, np.bool_)
        for _ in range(_BLOCKS_MAX if room is not None else 1):
            found = self._block(queue, RECORDS_MAX if room is None else self._scan.block_max)
            if found is None:
                break
            entries = EntryColumns.concatenated([entries, found[0]])
            matches = np.concatenate([matches, found[1]])
            if room is not None and len(entries) > room:
                self._unshown += len(entries) - room
                newest = slice(len(entries) - room, None)
                entries, matches = entries.select(newest), matches[newest]
        return entries, matches

    def _block(self, queue: _FollowedQueue, limit: int) -> tuple[EntryColumns, _Bools] | None:
        """Scan the next block of a queue; None if nothing is new."""
        position = queue.position
        self._missed += position.skip()
        is_live = position.next_offset >= queue.live_from
        if is_live and (ahead := position.ahead()) > self._backlog_max:
            self._skipped += position.jump_to(position.next_offset + ahead - RECORDS_MAX)
            position.skip()
        start, stop = position.window(limit)
        if stop <= start:
            return None
        try:
            matched = self._scan.matches(queue.reader, start, stop)
            shown = matched
            if self._with_rejected:
                shown = queue.reader.entries(start, stop).without_holes()
        except OffsetOutOfRangeError:
            if not position.is_behind:
                raise
            return None  # deleted while it was read: the next step counts them
        position.next_offset = stop
        return shown, np.isin(shown.queue_offsets, matched.queue_offsets, assume_unique=True)

    def _seen(
        self, queue: _FollowedQueue, picked: EntryColumns, matches: _Bools
    ) -> Iterator[SeenMessage]:
        """Yield the messages of entries with their verdicts."""
        for part in _chunks(picked):
            try:
                messages = queue.reader.messages(picked.select(part))
            except OffsetOutOfRangeError:
                self._missed += part.stop - part.start
                continue
            codes = picked.tags_codes[part].tolist()
            for message, code, is_match in zip(messages, codes, matches[part], strict=True):
                if is_match:
                    yield SeenMessage(message, FilterReason.MATCHED)
                else:
                    yield self._rejected(message, code)

    def _rejected(self, message: StoredMessage, tags_code: int) -> SeenMessage:
        verdict = explain_filter(
            self._filter.subscription,
            message,
            tags_code,
            lambda _, record: self._asked(record),
        )
        return SeenMessage(message, verdict.reason, deciding_step(verdict))

    def _asked(self, message: StoredMessage) -> bool:
        """Return the result of the predicate; a batch predicate was asked in its batch."""
        if self._filter.batch_columns is not None:
            return False
        return self._filter.matches_record(message)


class _FollowedQueue:
    """One queue that is followed."""

    def __init__(self, data: Path, topic: str, queue_id: int, start: TailStart) -> None:
        directory = shard_directory(data, topic, queue_id)
        self._page = control_path(data, topic, queue_id)
        control = control_of(data, topic, queue_id)
        self._inode = self._page.stat().st_ino
        self.reader = QueueReader(directory, topic, queue_id)
        minimum, self.live_from = control.minimum(), control.visible()
        view = QueueView(queue_id, minimum, self.live_from, self.reader, directory)
        begin = _begin(view, start)
        if start.kind == "resume":
            self.live_from = begin
        self.position = ScanPosition(
            control,
            partial(gaps_of, directory, topic, queue_id),
            begin,
            stop=None,
            where=f"{topic}/{queue_id}",
        )

    def is_there(self) -> bool:
        """Return whether it is still the queue that was opened."""
        try:
            return self._page.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        self.reader.close()


def _begin(view: QueueView, start: TailStart) -> int:
    match start.kind:
        case "latest":
            return view.maximum
        case "earliest":
            return view.minimum
        case "offset":
            return min(max(start.number, view.minimum), view.maximum)
        case "time":
            return view.first_stored_at(start.number)
        case "resume":
            position = start.positions.get(view.queue_id, 0)  # below the minimum: missed
            return position if position <= view.maximum else view.minimum  # else a new topic


def _chunks(entries: EntryColumns) -> Iterator[slice]:
    """Yield parts of *entries* whose records together are small, or single ones."""
    sizes: Sequence[int] = entries.sizes.tolist()
    first = held = 0
    for number, size in enumerate(sizes):
        if held and held + size > _CHUNK_BYTES:
            yield slice(first, number)
            first, held = number, 0
        held += size
    if first < len(sizes):
        yield slice(first, len(sizes))
