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

A tail belongs to one thread at a time. The queues of a topic that are on several disks have a tail
on each: see ``remote/disks_tail.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import merge
from pathlib import Path
from typing import Literal

import numpy as np

from rocketray.base.limits import SentOffset, SentQueueId
from rocketray.broker.topics.queue_views import QueueView
from rocketray.errors import OffsetOutOfRangeError, ShardUnavailableError, StoreError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.filters.message_filter import MessageFilter
from rocketray.filters.subscription import Subscription
from rocketray.runtime.files.paths import shard_directory
from rocketray.runtime.ipc.control_page import control_of
from rocketray.store.queues.gaps_file import gaps_of
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns

from .block_scan import BlockScan
from .filter_stream import RECORDS_MAX
from .scan_position import ScanPosition
from .seen_messages import SeenEntries, SeenMessage, Verdicts

_BLOCKS_MAX = 64  # of a queue in a step: 30 ms or so
BACKLOG_MAX = _BLOCKS_MAX * RECORDS_MAX  # of a queue: what a step with room can scan
_NO_LIMIT = 1 << 62  # bytes; no block has so many


@dataclass(frozen=True, slots=True)
class TailStart:
    """Where a tail begins in each queue.

    ``latest`` is the end of the queue, ``earliest`` its begin, ``offset`` a queue offset, and
    ``time`` a store time in milliseconds since 1970, both in ``number``. A queue in ``positions``
    continues another tail there; below its offset in ``stored`` nothing is left out (rule 1).
    """

    kind: Literal["latest", "earliest", "offset", "time"] = "latest"
    number: SentOffset = 0
    positions: Mapping[SentQueueId, SentOffset] = field(default_factory=dict)
    stored: Mapping[SentQueueId, SentOffset] = field(default_factory=dict)


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

    def __add__(self, other: TailCounts) -> TailCounts:
        return TailCounts(
            self.filter + other.filter,
            self.skipped + other.skipped,
            self.unshown + other.unshown,
            self.error or other.error,
        )


NO_COUNTS = TailCounts(NO_COUNTERS, 0, 0, "")


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
        only: Collection[int] | None = None,
    ) -> None:
        """Open the queues of *topic* in the data directory of a node; read also what is rejected.

        With *only*, these queues alone; of those some may be missing, until they are there.

        Raises:
            FilterError: the subscription cannot be used.
            StoreError: there is no such topic.
        """
        self._data = data
        self._topic = topic
        self._filter = MessageFilter(subscription)
        self._scan = BlockScan(self._filter)
        self._verdicts = Verdicts(self._filter)
        self._only = only
        self._with_rejected = with_rejected
        self._backlog_max = backlog_max
        self._queues: dict[int, _FollowedQueue] = {}
        self._missed = self._skipped = self._unshown = 0
        self._open(start)
        self._check()

    @property
    def queue_ids(self) -> list[int]:
        return sorted(self._queues)

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each queue, where a tail can resume this one."""
        return {number: queue.position.next_offset for number, queue in self._queues.items()}

    @property
    def stored(self) -> dict[int, int]:
        """Up to where each queue is read without leaving out a message."""
        return {number: queue.live_from for number, queue in self._queues.items()}

    @property
    def counts(self) -> TailCounts:
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
        self._check()

    def read(self, room: int | None = None) -> Iterator[SeenMessage]:
        """Yield what is new, a bounded part of each queue, by store time.

        *room* is the number of messages that the reader can take, None for all: then the parts are
        small. The iterator has to be exhausted before the next call.

        Raises:
            StoreError: files are damaged.
        """
        blocks = [self._seen(block) for block in self.blocks(room)]
        yield from merge(*blocks, key=lambda each: each.message.store_timestamp_ms)

    def blocks(self, room: int | None = None, size: int = _NO_LIMIT) -> list[SeenEntries]:
        """Return the same as entries of each queue; their records have *size* bytes at most.

        But each queue has one message, if there is one. Raises as :meth:`read`.
        """
        blocks = []
        for count, queue in enumerate(self._queues.values()):
            # What a queue leaves of its share is for those after it.
            queues = len(self._queues) - count
            share = None if room is None else -(-room // queues)
            seen = self._step(queue, share, size // queues)
            room = None if room is None else room - len(seen.entries)
            size -= int(seen.entries.sizes.sum(dtype=np.int64))
            blocks.append(seen)
        return blocks

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()
        self._queues.clear()

    def _open(self, start: TailStart) -> None:
        directory = shard_directory(self._data, self._topic, 0).parent
        there = {int(path.name) for path in directory.glob("*") if path.name.isdecimal()}
        wanted = there if self._only is None else there & {*self._only}
        for queue_id in sorted(wanted - self._queues.keys()):
            with suppress(ShardUnavailableError, FileNotFoundError):  # it is being created
                self._queues[queue_id] = _FollowedQueue(self._data, self._topic, queue_id, start)

    def _check(self) -> None:
        if not self._queues and self._only is None:
            raise StoreError(
                f"{self._data} has no topic {self._topic!r}; it may have been deleted: see: "
                "rocketray topics list"
            )

    def _step(self, queue: _FollowedQueue, room: int | None, size: int) -> SeenEntries:
        """Scan what is new in a queue; return the entries to show, and which of them match.

        Without a *room* it is one small block, so that nothing has to be left out.
        """
        nothing = EntryColumns.room_for(0), np.empty(0, np.bool_)
        seen = SeenEntries(queue.reader, *nothing)
        for _ in range(_BLOCKS_MAX if room is not None else 1):
            limit = RECORDS_MAX if room is None else self._scan.block_max
            # With room, the newest of the step are chosen by size afterwards (rule 2).
            block = self._block(queue, limit, _NO_LIMIT if room is not None else size)
            if block is None:
                break
            entries = EntryColumns.concatenated([seen.entries, block.entries])
            seen = SeenEntries(queue.reader, entries, np.concatenate([seen.matches, block.matches]))
            if room is not None:
                shown = seen.newest(room, size)
                self._unshown += len(seen.entries) - len(shown.entries)
                seen = shown
        return seen

    def _block(self, queue: _FollowedQueue, limit: int, size: int) -> SeenEntries | None:
        """Scan the next block of a queue, of *size* bytes; None if nothing is new."""
        position = queue.position
        self._missed += position.skip()
        is_live = position.next_offset >= queue.live_from
        if is_live and (ahead := position.ahead()) > self._backlog_max:
            # So that one block is left: the newest messages are what a tail shows.
            self._skipped += position.jump_to(position.next_offset + ahead - RECORDS_MAX)
            position.skip()
        start, stop = position.window(limit)
        if stop <= start:
            return None
        try:
            if size < _NO_LIMIT:
                behind = np.cumsum(queue.reader.entries(start, stop).sizes, dtype=np.int64)
                stop = start + max(1, int(np.searchsorted(behind, size, side="right")))
            matched = self._scan.matches(queue.reader, start, stop)
            shown = matched
            if self._with_rejected:
                shown = queue.reader.entries(start, stop).without_holes()
        except OffsetOutOfRangeError:
            if not position.is_behind:
                raise
            return None  # deleted while it was read: the next step counts them
        position.next_offset = stop
        matches = np.isin(shown.queue_offsets, matched.queue_offsets, assume_unique=True)
        return SeenEntries(queue.reader, shown, matches)

    def _seen(self, block: SeenEntries) -> Iterator[SeenMessage]:
        """Yield the messages of entries with their verdicts."""
        for part in block.chunks():
            try:
                yield from self._verdicts.messages(part)
            except OffsetOutOfRangeError:
                self._missed += len(part.entries)


class _FollowedQueue:
    """One queue, and up to where it had messages when the tail began (rule 1)."""

    def __init__(self, data: Path, topic: str, queue_id: int, start: TailStart) -> None:
        directory = shard_directory(data, topic, queue_id)
        control = control_of(data, topic, queue_id)
        self.is_there = control.is_there
        self.reader = QueueReader(directory, topic, queue_id)
        minimum, self.live_from = control.minimum(), control.visible()
        view = QueueView(queue_id, minimum, self.live_from, self.reader, directory)
        begin = _begin(view, start)
        if queue_id in start.positions:
            self.live_from = max(begin, min(self.live_from, start.stored.get(queue_id, 0)))
        self.position = ScanPosition(
            control,
            partial(gaps_of, directory, topic, queue_id),
            begin,
            stop=None,
            where=f"{topic}/{queue_id}",
        )

    def close(self) -> None:
        self.reader.close()


def _begin(view: QueueView, start: TailStart) -> int:
    if view.queue_id in start.positions:
        position = start.positions[view.queue_id]  # below the minimum: missed
        return position if position <= view.maximum else view.minimum  # else a new topic
    match start.kind:
        case "latest":
            return view.maximum
        case "earliest":
            return view.minimum
        case "offset":
            return min(max(start.number, view.minimum), view.maximum)
        case "time":
            return view.first_stored_at(start.number)
