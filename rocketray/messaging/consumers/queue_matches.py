"""Where the matches of one queue come from: the filter actor, or for ``*`` the queue itself.

Without a filter there is nothing that the filter actor could keep from a member. So such a member
watches the queue's watermark itself: a message reaches it one wake-up and one process sooner, it
needs no ring, and it continues without the filter actor.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rocketray.broker.filtering.engine import MATCH_RING_SUFFIX
from rocketray.broker.filtering.scan_position import ScanPosition
from rocketray.errors import FilterError, OffsetOutOfRangeError
from rocketray.filters.counters import FilterCounters
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.files.paths import consumer_directory, filter_doorbell_path, shard_directory
from rocketray.runtime.ipc.control_page import ControlPage, Doorbell
from rocketray.runtime.ipc.match_ring import CAPACITY, MatchRing, StreamDescription, StreamState
from rocketray.runtime.processes import owned_name
from rocketray.store.queues.gaps_file import gaps_of
from rocketray.store.queues.queue_gaps import QueueGaps
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns


class QueueMatches(Protocol):
    """The matches of one subscription in one queue; for the member's polling thread."""

    is_attached: bool
    """Whether matches arrive; if not, call :meth:`attach`."""

    @property
    def first_error(self) -> int | None:
        """The first message on which SQL92 failed."""

    def attach(self) -> None:
        """Have matches arrive; raises as ``FilterApi.attach_ring``."""

    def take_matches(self, max_count: int) -> tuple[EntryColumns, int] | None:
        """Take matches, and the offset to commit after them; None if the queue did not move.

        Raises:
            FilterError: the filter failed, and all earlier matches were taken.
        """

    def counters(self) -> FilterCounters:
        """Return the counters of the filter."""

    def close(self) -> None:
        """Let no more matches arrive."""


def matches_of(
    node: NodeClient,
    description: StreamDescription,
    bell: Doorbell,
    control: ControlPage,
    reader: QueueReader,
) -> QueueMatches:
    """Return the matches of a stream, which ring *bell*; the queue is that of the last two."""
    # A bell cannot watch without futex_waitv (Linux 5.16), or beyond 127 queues: then the filter
    # actor rings it for this queue, too.
    if description.subscription.matches_all and bell.watch(control.watermark):
        place = description.topic, description.queue_id
        find_gaps = partial(gaps_of, shard_directory(node.data, *place), *place)
        return _AllMessages(description, bell, control, reader, find_gaps)
    return _FilteredMessages(node, description)


class _FilteredMessages:
    """Those that the filter actor puts into a ring."""

    def __init__(self, node: NodeClient, description: StreamDescription) -> None:
        self._node = node
        name = owned_name(f"{uuid.uuid4().hex}{MATCH_RING_SUFFIX}")
        self.ring = MatchRing(consumer_directory(node.data) / name, description)
        self.is_attached = False
        self._next_offset = description.start
        self._filter_doorbell = Doorbell(filter_doorbell_path(node.data))

    @property
    def first_error(self) -> int | None:
        return self.ring.first_error

    def attach(self) -> None:
        self._node.filters.attach_ring(str(self.ring.path))
        self.is_attached = True

    def take_matches(self, max_count: int) -> tuple[EntryColumns, int] | None:
        # The state is read first: then all earlier matches are in the ring.
        has_failed = self.ring.state is StreamState.FAILED
        # A filter that finds the ring full stops, and only this bell wakes it. Above one half, each
        # take rings: the first after a stop does, and the small takes of an idle queue never do.
        may_wait_for_room = self.ring.waiting() > CAPACITY // 2
        rows, next_offset = self.ring.take(max_count)
        if may_wait_for_room:
            self._filter_doorbell.ring()
        if not len(rows) and next_offset == self._next_offset:
            if has_failed:
                raise FilterError(self.ring.error)
            return None
        self._next_offset = next_offset
        return _entries(rows), next_offset

    def counters(self) -> FilterCounters:
        return self.ring.counters()

    def close(self) -> None:
        self.ring.close()


def _entries(rows: npt.NDArray[np.int64]) -> EntryColumns:
    return EntryColumns(
        physical_offsets=np.ascontiguousarray(rows[:, 0]),
        sizes=rows[:, 1].astype(np.int32),
        tags_codes=np.zeros(len(rows), np.int64),  # not in the ring: tags are compared by text
        queue_offsets=np.ascontiguousarray(rows[:, 2]),
    )


class _AllMessages:
    """All messages of a queue whose watermark *bell* watches."""

    def __init__(
        self,
        description: StreamDescription,
        bell: Doorbell,
        control: ControlPage,
        reader: QueueReader,
        find_gaps: Callable[[], QueueGaps],
    ) -> None:
        self.is_attached = True
        self.first_error = None
        self._bell = bell
        self._control = control
        self._reader = reader
        self._scanned = self._holes = self._missed = 0
        where = f"{description.topic}/{description.queue_id} for group {description.group}"
        self._position = ScanPosition(
            *(control, find_gaps, description.start), stop=description.stop, where=where
        )

    def attach(self) -> None:
        """Do nothing: it needs no filter."""

    def take_matches(self, max_count: int) -> tuple[EntryColumns, int] | None:
        position = self._position
        before = position.next_offset
        if self._control.visible() <= before:  # of most queues; the rest takes ten times as long
            return None
        self._missed += position.skip()
        start, stop = position.window(max_count)
        if stop <= start:
            is_moved = position.next_offset > before
            return (EntryColumns.room_for(0), position.next_offset) if is_moved else None
        try:
            entries = self._reader.entries(start, stop).without_holes()
        except OffsetOutOfRangeError:
            if position.is_behind:  # deleted while it was read: the next call continues behind it
                return None
            raise
        self._scanned += stop - start
        self._holes += stop - start - len(entries)
        position.next_offset = stop
        return entries, stop

    def counters(self) -> FilterCounters:
        # The filter actor, too, counts entries without a message as rejected by their tags code.
        return FilterCounters(self._scanned, tag_rejected=self._holes, missed=self._missed)

    def close(self) -> None:
        self._bell.unwatch(self._control.watermark)
