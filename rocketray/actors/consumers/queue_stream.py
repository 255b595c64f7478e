"""A member's side of one queue: matches arrive in a ring, messages are read from the mapped log."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.actors.files.paths import (
    consumer_directory,
    control_path,
    filter_doorbell_path,
    shard_directory,
)
from rocketray.actors.filtering.engine import MATCH_RING_SUFFIX
from rocketray.actors.groups.subscription_change import Part
from rocketray.actors.ipc.control_page import ControlPage, Doorbell
from rocketray.actors.ipc.match_ring import CAPACITY, MatchRing, StreamDescription, StreamState
from rocketray.actors.runtime.processes import owned_name
from rocketray.errors import FilterError, OffsetOutOfRangeError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import parse
from rocketray.store.reading.reader import EntryColumns, QueueReader

__all__ = ["QueueStream", "TakenMatches"]


class TakenMatches(NamedTuple):
    """The matches of the filter, and the offset to commit after them.

    ``missed`` of them were removed since, ``collisions`` had another tag with the same hash.
    """

    entries: EntryColumns
    next_queue_offset: int
    missed: int
    collisions: int


class QueueStream:
    """One queue that a member owns: the ring of its matches, and the log behind them.

    The caller sets ``is_attached`` when it has the filter actor fill the ring.
    """

    def __init__(self, data: Path, description: StreamDescription) -> None:
        self.queue_id = description.queue_id
        self._data = data
        self._read(description)
        directory = shard_directory(data, description.topic, description.queue_id)
        self.reader = QueueReader(directory, description.topic, description.queue_id)
        self.next_queue_offset = description.start
        self._waiting: tuple[EntryColumns, int] | None = (
            None  # taken from the ring, not yet delivered
        )
        self._control = ControlPage(control_path(data, description.topic, description.queue_id))
        self._let_go = 0
        self._filter_doorbell = Doorbell(filter_doorbell_path(data))

    def _read(self, description: StreamDescription) -> None:
        name = owned_name(f"{uuid.uuid4().hex}{MATCH_RING_SUFFIX}")
        self.ring = MatchRing(consumer_directory(self._data) / name, description)
        self.is_attached = False
        self._description = description
        subscription = description.subscription
        is_tags = subscription.expression_type == "TAG"
        self._tags = sorted(parse(subscription.expression).tags_set) if is_tags else []

    @property
    def part(self) -> Part:
        """The subscription that the queue is read with, and the offset to stop at."""
        return Part(self._description.subscription, self._description.stop)

    def visible(self) -> int:
        """Return the end of the queue that readers may see now."""
        return self._control.visible()

    def read_on(self, part: Part) -> FilterCounters:
        """Continue from here with another part, through a new ring that is not attached yet.

        Return the filter counters of the part before.
        """
        before, start = self.ring, self.next_queue_offset
        self._read(replace(self._description, subscription=part[0], stop=part[1], start=start))
        self._waiting = None  # read again with the new part
        before.close()
        return before.counters()

    def take(self, max_count: int) -> TakenMatches | None:
        """Take the waiting matches that still exist; None if the queue did not move.

        After an error the same matches are tried again by the next call; none is skipped.

        Raises:
            FilterError: the stream failed, and all earlier matches were taken.
            StreamError: a record is damaged. OSError: the log cannot be read.
        """
        if self._waiting is None:
            self._waiting = self._from_ring(max_count)
        if self._waiting is None:
            return None
        matches, next_queue_offset = self._waiting
        there = self._secure(matches)
        entries = self._exact(there)
        self._waiting = None
        self.next_queue_offset = next_queue_offset
        missed, collisions = len(matches) - len(there), len(there) - len(entries)
        return TakenMatches(entries, next_queue_offset, missed, collisions)

    def _from_ring(self, max_count: int) -> tuple[EntryColumns, int] | None:
        has_failed = (
            self.ring.state is StreamState.FAILED
        )  # read first: then all earlier matches are in the ring
        may_wait_for_room = self.ring.waiting() > CAPACITY // 2
        rows, next_queue_offset = self.ring.take(max_count)
        if may_wait_for_room:
            self._filter_doorbell.ring()
        if not len(rows) and next_queue_offset == self.next_queue_offset:
            if has_failed:
                raise FilterError(self.ring.error)
            return None
        return _entries(rows), next_queue_offset

    def _secure(self, entries: EntryColumns) -> EntryColumns:
        """Return those of *entries* that still exist; their records stay readable from now on."""
        while True:
            minimum = self._control.minimum()
            if len(entries) and entries.queue_offsets[0] < minimum:
                entries = entries.select(entries.queue_offsets >= minimum)
            try:
                self.reader.map_records(entries)
            except OffsetOutOfRangeError:
                if self._control.minimum() == minimum:
                    raise
            else:
                return entries

    def _exact(self, entries: EntryColumns) -> EntryColumns:
        """Compare the tags' texts, as their hashes may collide."""
        if not self._tags or not len(entries):
            return entries
        mask = self.reader.have_tags(entries, self._tags)
        return entries if mask.all() else entries.select(mask)

    def let_go(self, finished: int) -> None:
        """Unmap the files of removed messages below *finished*, to free their disk space."""
        minimum = self._control.minimum()
        if self._let_go != minimum <= finished and minimum < self._control.visible():
            self._let_go = minimum
            self.reader.let_go_before(minimum)


def _entries(rows: npt.NDArray[np.int64]) -> EntryColumns:
    return EntryColumns(
        physical_offsets=np.ascontiguousarray(rows[:, 0]),
        sizes=rows[:, 1].astype(np.int32),
        tags_codes=np.zeros(len(rows), np.int64),
        queue_offsets=np.ascontiguousarray(rows[:, 2]),
    )
