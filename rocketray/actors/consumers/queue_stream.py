"""A member's side of one queue: matches arrive in a ring, messages are read from the mapped log."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.actors.api.node_client import NodeClient
from rocketray.actors.files.paths import (
    consumer_directory,
    filter_doorbell_path,
    shard_directory,
)
from rocketray.actors.filtering.engine import MATCH_RING_SUFFIX
from rocketray.actors.groups.subscription_change import QueuePart
from rocketray.actors.ipc.control_page import Doorbell, control_of
from rocketray.actors.ipc.match_ring import CAPACITY, MatchRing, StreamDescription, StreamState
from rocketray.actors.runtime.processes import owned_name
from rocketray.errors import FilterError, OffsetOutOfRangeError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.store.reading.reader import EntryColumns, QueueReader

from .stream_source import QueueBounds, TakenMatches

__all__ = ["QueueStream", "QueueStreams", "member_bell", "queue_bounds"]


class QueueStreams:
    """The streams of a member of *group* on the machine of a disk; see ``StreamSource``."""

    def __init__(
        self, node: NodeClient, group: str, topic: str, bell: Doorbell | None = None
    ) -> None:
        """Take the client at the disk. *bell* is the member's, if it has streams of other disks."""
        self._node = node
        self._group = group
        self._topic = topic
        self._owns_bell = bell is None
        self.bell = bell or member_bell(node)

    def start(self) -> None:
        """Do nothing: the filter actor works for the streams."""

    def bounds(self, queue_id: int) -> QueueBounds:
        """Return the bounds of a queue; raise ``ShardUnavailableError`` if it does not exist."""
        return queue_bounds(self._node.data, self._topic, queue_id)

    def is_left_behind(self) -> bool:
        """Return False: those who use it alone end with the node."""
        return False

    def follow(self, moves: int) -> frozenset[int]:  # noqa: ARG002 - of the protocol
        """Return no queues: those of one disk are all that this source has."""
        return frozenset()

    def open(self, queue_id: int, part: QueuePart, start: int) -> QueueStream:
        """Return a stream that begins at *start*, and is not attached yet."""
        wanted = self._topic, queue_id, self._group, part.subscription
        description = StreamDescription(*wanted, start, str(self.bell.path), part.stop)
        return QueueStream(self._node, description)

    def close(self) -> None:
        """Remove the doorbell, unless the member has it."""
        if self._owns_bell:
            self.bell.unlink()


def member_bell(node: NodeClient) -> Doorbell:
    """Return a new doorbell of a member on the machine of the client's disk."""
    return Doorbell(consumer_directory(node.data) / owned_name(f"{uuid.uuid4().hex}.bell"))


class QueueStream:
    """One queue that a member owns: the ring of its matches, and the log behind them."""

    def __init__(self, node: NodeClient, description: StreamDescription) -> None:
        self.queue_id = description.queue_id
        self._node = node
        self._control = control_of(node.data, description.topic, description.queue_id)
        self._counted = NO_COUNTERS  # of rings before this one
        self._read(description)
        directory = shard_directory(node.data, description.topic, description.queue_id)
        self._reader = QueueReader(directory, description.topic, description.queue_id)
        self.next_queue_offset = description.start
        self._waiting: tuple[EntryColumns, int] | None = None
        """Matches taken from the ring and not yet delivered, and the offset after them."""
        self._let_go = 0
        self._filter_doorbell = Doorbell(filter_doorbell_path(node.data))

    def _read(self, description: StreamDescription) -> None:
        name = owned_name(f"{uuid.uuid4().hex}{MATCH_RING_SUFFIX}")
        self._ring = MatchRing(consumer_directory(self._node.data) / name, description)
        self.is_attached = False
        self._description = description
        self._tags = description.subscription.exact_tags

    @property
    def part(self) -> QueuePart:
        """The subscription that the queue is read with, and the offset to stop at."""
        return QueuePart(self._description.subscription, self._description.stop)

    def attach(self) -> None:
        """Have the filter actor fill the ring; raises as ``FilterApi.attach``."""
        self._node.filters.attach(str(self._ring.path))
        self.is_attached = True

    def visible(self) -> int:
        """Return the end of the queue that readers may see now."""
        return self._control.visible()

    def read_on(self, part: QueuePart) -> None:
        """Continue from here with another part, through a new ring that is not attached yet."""
        before, start = self._ring, self.next_queue_offset
        self._read(replace(self._description, subscription=part[0], stop=part[1], start=start))
        self._waiting = None  # read again with the new part
        before.close()
        self._counted += before.counters()

    def take(self, max_count: int) -> TakenMatches | None:
        """See ``MemberStream.take``."""
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
        return TakenMatches(entries, self._reader, next_queue_offset, missed, collisions)

    def _from_ring(self, max_count: int) -> tuple[EntryColumns, int] | None:
        # The state is read first: then all earlier matches are in the ring.
        has_failed = self._ring.state is StreamState.FAILED
        may_wait_for_room = self._ring.waiting() > CAPACITY // 2
        rows, next_queue_offset = self._ring.take(max_count)
        if may_wait_for_room:
            self._filter_doorbell.ring()
        if not len(rows) and next_queue_offset == self.next_queue_offset:
            if has_failed:
                raise FilterError(self._ring.error)
            return None
        return _entries(rows), next_queue_offset

    def _secure(self, entries: EntryColumns) -> EntryColumns:
        """Return those of *entries* that still exist; their records stay readable from now on."""
        while True:
            minimum = self._control.minimum()
            if len(entries) and entries.queue_offsets[0] < minimum:
                entries = entries.select(entries.queue_offsets >= minimum)
            try:
                self._reader.map_records(entries)
            except OffsetOutOfRangeError:
                if self._control.minimum() == minimum:
                    raise
            else:
                return entries

    def _exact(self, entries: EntryColumns) -> EntryColumns:
        """Compare the tags' texts, as their hashes may collide."""
        if not self._tags or not len(entries):
            return entries
        mask = self._reader.have_tags(entries, self._tags)
        return entries if mask.all() else entries.select(mask)

    def let_go(self, finished: int) -> None:
        """Unmap the files of removed messages below *finished*, to free their disk space."""
        minimum = self._control.minimum()
        if self._let_go != minimum <= finished and minimum < self._control.visible():
            self._let_go = minimum
            self._reader.let_go_before(minimum)

    @property
    def first_error(self) -> int | None:
        """The first message on which SQL92 failed."""
        return self._ring.first_error

    def counters(self) -> FilterCounters:
        """Return the counters of the filter since the stream was opened."""
        return self._counted + self._ring.counters()

    def stop(self) -> None:
        """Have the filter actor drop the stream; messages that were taken stay readable."""
        self._ring.close()

    def close(self) -> None:
        """Unmap the queue's files."""
        self._reader.close()


def _entries(rows: npt.NDArray[np.int64]) -> EntryColumns:
    return EntryColumns(
        physical_offsets=np.ascontiguousarray(rows[:, 0]),
        sizes=rows[:, 1].astype(np.int32),
        tags_codes=np.zeros(len(rows), np.int64),
        queue_offsets=np.ascontiguousarray(rows[:, 2]),
    )


def queue_bounds(data: Path, topic: str, queue_id: int) -> QueueBounds:
    """Return the bounds of a queue; raise ``ShardUnavailableError`` if it does not exist."""
    control = control_of(data, topic, queue_id)
    return QueueBounds(control.minimum(), control.visible())
