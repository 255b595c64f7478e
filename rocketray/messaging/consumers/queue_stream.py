"""A member's side of one queue: its matches (queue_matches.py), and the mapped log."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from rocketray.errors import OffsetOutOfRangeError, StreamError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.groups.filter_plan import QueuePart
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.files.paths import consumer_directory, shard_directory
from rocketray.runtime.ipc.control_page import Doorbell, control_of, not_here
from rocketray.runtime.ipc.match_ring import StreamDescription
from rocketray.runtime.processes import owned_name
from rocketray.store.reading.reader import QueueReader
from rocketray.store.reading.record_spans import EntryColumns

from .queue_matches import matches_of
from .stream_source import QueueBounds, TakenMatches


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
        """Do nothing: it has no threads of its own."""

    def bounds(self, queue_id: int) -> QueueBounds:
        return queue_bounds(self._node.data, self._topic, queue_id)

    def is_left_behind(self) -> bool:
        """Return False: those who use it alone end with the node."""
        return False

    def follow(self, moves: int) -> frozenset[int]:  # noqa: ARG002 - of the protocol
        """Return no queues: those of one disk are all that this source has."""
        return frozenset()

    def open(self, queue_id: int, part: QueuePart, start: int) -> QueueStream:
        wanted = self._topic, queue_id, self._group, part.subscription
        description = StreamDescription(*wanted, start, str(self.bell.path), part.stop)
        return QueueStream(self._node, description, self.bell)

    def close(self) -> None:
        """Remove the doorbell, unless the member has it."""
        if self._owns_bell:
            self.bell.unlink()


def member_bell(node: NodeClient) -> Doorbell:
    """Return a new doorbell of a member on the machine of the client's disk."""
    return Doorbell(consumer_directory(node.data) / owned_name(f"{uuid.uuid4().hex}.bell"))


class QueueStream:
    """One queue that a member owns, its ``MemberStream``: its matches, and the log behind them."""

    def __init__(self, node: NodeClient, description: StreamDescription, bell: Doorbell) -> None:
        self.queue_id = description.queue_id
        self._node = node
        self._bell = bell
        self._control = control_of(node.data, description.topic, description.queue_id)
        self.is_there = self._control.is_there
        self._counted = NO_COUNTERS  # of other parts before this one
        directory = shard_directory(node.data, description.topic, description.queue_id)
        self._reader = QueueReader(directory, description.topic, description.queue_id)
        self._read(description)
        self.next_queue_offset = description.start
        self._waiting: tuple[EntryColumns, int] | None = None
        """Matches that were taken and not yet delivered, and the offset after them."""
        self._let_go = 0

    def _read(self, description: StreamDescription) -> None:
        self._matches = matches_of(self._node, description, self._bell, self._control, self._reader)
        self._description = description
        self._tags = description.subscription.exact_tags

    @property
    def is_attached(self) -> bool:
        return self._matches.is_attached

    @property
    def part(self) -> QueuePart:
        return QueuePart(self._description.subscription, self._description.stop)

    def attach(self) -> None:
        self._matches.attach()

    def visible(self) -> int:
        """Return the end of the queue that readers may see now."""
        return self._control.visible()

    def read_on(self, part: QueuePart) -> None:
        before, start = self._matches, self.next_queue_offset
        self._read(replace(self._description, subscription=part[0], stop=part[1], start=start))
        self._waiting = None  # read again with the new part
        before.close()
        self._counted += before.counters()

    def take_matches(self, max_count: int) -> TakenMatches | None:
        """See ``MemberStream``.

        Raises:
            ShardUnavailableError: the queue was moved to another disk, or deleted, so its files
                are gone: whatever was wrong with what is still mapped, it is no damage.
        """
        try:
            return self._take(max_count)
        except StreamError:
            if self.is_there():
                raise
            raise not_here(self._description.topic, self.queue_id) from None

    def _take(self, max_count: int) -> TakenMatches | None:
        if self._waiting is None:
            self._waiting = self._matches.take_matches(max_count)
        if self._waiting is None:
            return None
        matches, next_queue_offset = self._waiting
        there = self._secure(matches)
        entries = self._exact(there)
        self._waiting = None
        self.next_queue_offset = next_queue_offset
        missed, collisions = len(matches) - len(there), len(there) - len(entries)
        return TakenMatches(entries, self._reader, next_queue_offset, missed, collisions)

    def _secure(self, entries: EntryColumns) -> EntryColumns:
        """Return those of *entries* that still exist; their records stay readable from now on."""
        while True:
            minimum = self._control.minimum()
            if len(entries) and entries.queue_offsets[0] < minimum:
                entries = entries.select(entries.queue_offsets >= minimum)
            try:
                self._reader.map_records(entries)
            except OffsetOutOfRangeError:
                if self._control.minimum() == minimum:  # else retention was faster: look again
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
        # The reader finds the files by the record at that offset, so there has to be one.
        if self._let_go != minimum <= finished and minimum < self._control.visible():
            self._let_go = minimum
            self._reader.let_go_before(minimum)

    @property
    def first_error(self) -> int | None:
        return self._matches.first_error

    def counters(self) -> FilterCounters:
        return self._counted + self._matches.counters()

    def stop(self) -> None:
        self._matches.close()

    def close(self) -> None:
        self._reader.close()


def queue_bounds(data: Path, topic: str, queue_id: int) -> QueueBounds:
    """Return the bounds of a queue; raise ``ShardUnavailableError`` if it does not exist."""
    control = control_of(data, topic, queue_id)
    return QueueBounds(control.minimum(), control.visible())
