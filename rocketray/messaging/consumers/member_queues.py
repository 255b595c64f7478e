"""The queues that a group member reads: opened when granted, released when revoked.

The polling thread opens, reads and releases; any thread may commit, count and query.

Invariants
  1. A queue that cannot be opened because an actor is unavailable is retried; the others are read
     meanwhile.
  2. An error of one queue does not hold up the others: it is raised when they have no messages, or
     by the next call. No taken match is skipped; it is tried again.
  3. A queue that was moved to another disk is read on there, from where it was taken; what was
     taken before stays readable. So is one of a node that was started again.
  4. A queue is read no further than its part (filter_plan.py) allows, from before the
     switch offset is proposed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container
from dataclasses import dataclass, field

from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.groups.group_offsets import LONG_MAX, check_known_queue, check_next_offset
from rocketray.groups.member_options import StartFrom
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.outage_log import OutageLog

from .member_session import MemberSession
from .start_offset import NextBegin, next_begin
from .stream_source import MemberStream, QueueBounds, StreamSource

_LOG = logging.getLogger(__name__)
OnRevoke = Callable[[frozenset[tuple[str, int]]], None]


@dataclass(slots=True, eq=False)
class MemberQueues:
    """The queues of ``topic`` that one member of ``group`` reads; none at first.

    ``start`` is where a group without an offset begins; ``clock_ms`` is monotonic.
    """

    node: NodeClient
    source: StreamSource
    group: str
    topic: str
    start: StartFrom | int
    session: MemberSession
    clock_ms: Callable[[], int]
    streams: dict[int, MemberStream] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    """Taken before the session's lock, and never while that is held."""
    _reopen_ms: int = field(default=0, init=False)
    _attach_ms: dict[int, int] = field(default_factory=dict, init=False)
    """When to try again to attach the stream of a queue."""
    _may_attach: bool = field(default=True, init=False)
    """In this turn: a call to a filter that does not answer takes long."""
    _error: StreamError | OSError | None = field(default=None, init=False)
    _moves: int = field(default=0, init=False)  # of the topic, as far as they were followed
    _moved: frozenset[int] = field(default=frozenset(), init=False)
    """The queues whose streams lead to a disk where they are no more."""
    _outages: OutageLog = field(default_factory=lambda: OutageLog(_LOG), init=False)
    _known: set[int] = field(default_factory=set, init=False)
    """The queues that were read at any time: a commit for another one is an error."""
    _counted: FilterCounters = field(default=NO_COUNTERS, init=False)
    _own: dict[str, int] = field(default_factory=dict, init=False)
    """The member's own counts, by the names of counters."""

    def commit(self, queue_id: int, next_queue_offset: int) -> None:
        """Mark the queue as finished below the offset; no effect on a released queue.

        Raises:
            ConfigError: the member never read the queue, or the offset is not a number.
            OffsetOutOfRangeError: the queue ends before the offset, or the offset is negative.
        """
        with self._lock:
            check_known_queue(self.topic, queue_id, self._known)
            stream = self.streams.get(queue_id)
            end = LONG_MAX if stream is None else stream.visible()
            offset = check_next_offset(self.topic, queue_id, next_queue_offset, end)
            if stream is not None:
                self.session.commit(queue_id, offset)

    def pulled(self) -> dict[int, int]:
        """Return the offset up to which each queue was taken."""
        with self._lock:
            return {each.queue_id: each.next_queue_offset for each in self.streams.values()}

    def counters(self) -> FilterCounters:
        """Return the sums of the filter for this member, and of the outcomes of its matches."""
        with self._lock:
            before = self._counted + FilterCounters(**self._own)
            return sum((each.counters() for each in self.streams.values()), before)

    def count(self, **numbers: int) -> None:
        """Add to the member's own counts, by the names of ``FilterCounters``."""
        with self._lock:
            for name, number in numbers.items():
                self._own[name] = self._own.get(name, 0) + number

    @property
    def has_to_open(self) -> bool:
        """Whether a queue waits to be opened or attached, and the retry time has come."""
        if (self.session.must_begin or self._has_to_move) and self.clock_ms() >= self._reopen_ms:
            return True
        return any(self._has_to_attach(stream) for stream in tuple(self.streams.values()))

    @property
    def _has_to_move(self) -> bool:
        """Whether streams lead to where their queues are no more."""
        has_moved = self._moves != self.session.moves or bool(self._moved)
        return has_moved or self.source.is_left_behind()

    # For the polling thread only

    def settle_assignment(self, on_revoke: OnRevoke | None) -> None:
        """Release the queues that are not granted any more, and open the new ones."""
        assigned: dict[int, int] = {}
        if not self.session.is_settled:
            lost = self.session.lost()
            # In this order: *on_revoke* may still commit, and the next heartbeat, which leaves the
            # queues out, has these commits.
            self.close(lost, on_revoke)
            self.session.revoke(lost)
            assigned = self.session.assign()
        self._may_attach = True
        if self.clock_ms() < self._reopen_ms:
            return
        self._follow_moves()
        for queue_id, offset in sorted(assigned.items()):
            try:
                self._open(queue_id, offset)
            except (StreamError, OSError) as error:
                self._note(queue_id, error)

    def take_batches(self, max_messages: int, skip: Container[int]) -> list[ConsumedBatch]:
        """Take batches of at most *max_messages* from each queue that is not in *skip*.

        Raises:
            FilterError: a stream failed.
            StreamError: a queue cannot be opened, or a record is damaged.
            OSError: a file cannot be read or created.
        """
        self.check()
        self._may_attach = True
        batches = []
        finished = self.session.finished()
        for stream in tuple(self.streams.values()):
            try:
                self._follow(stream)
                stream.let_go(finished[stream.queue_id])
                if stream.queue_id not in skip:
                    batches += self._batches(stream, max_messages)
            except (StreamError, OSError) as error:
                self._note(stream.queue_id, error)
        if not batches:
            self.check()
        return batches

    def check(self) -> None:
        """Raise the error that was noted since the last call, if any."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self, queue_ids: frozenset[int], on_revoke: OnRevoke | None) -> None:
        """Stop reading queues; *on_revoke* is called with them while they still count as read."""
        read = queue_ids & self.streams.keys()
        for queue_id in read:
            self.streams[queue_id].stop()
        if read and on_revoke is not None:
            on_revoke(frozenset((self.topic, queue_id) for queue_id in read))
        with self._lock:
            closed = [self.streams.pop(queue_id) for queue_id in read]
            self._counted = sum((each.counters() for each in closed), self._counted)
        for stream in closed:
            stream.close()

    def _open(self, queue_id: int, offset: int) -> None:
        bounds = self.source.bounds(queue_id)
        if offset < 0:
            begin = NextBegin(self._begin(queue_id, bounds))
        else:
            begin = next_begin(offset, *bounds)
        begin.log(self.group, self.topic, queue_id, offset)
        start = begin.queue_offset
        part = self.session.follower.part(queue_id, start, lambda: bounds.end)
        stream = self.source.open(queue_id, part, start)
        with self._lock:
            self.streams[queue_id] = stream
            self._known.add(queue_id)
            self._counted += FilterCounters(missed=begin.missed)
            self.session.begin(queue_id, start)
        self._follow(stream)

    def _follow_moves(self) -> None:
        """Open the streams of moved queues again; one that fails is tried again later.

        As are all of a node on this machine that was started again.
        """
        if not self._has_to_move:
            return
        moves = self.session.moves
        try:
            self._moved = (self._moved | self.source.follow(moves)) & self.streams.keys()
        except (StreamError, OSError) as error:
            self._note_later(error)
            return
        self._moves = moves
        for queue_id in sorted(self._moved):
            try:
                self._move(queue_id)
            except (StreamError, OSError) as error:
                self._note_later(error)

    def _move(self, queue_id: int) -> None:
        before = self.streams[queue_id]
        stream = self.source.open(queue_id, before.part, before.next_queue_offset)
        with self._lock:
            before.stop()  # not closed: batches that were taken of it are still being read
            self.streams[queue_id] = stream
            self._counted += before.counters()
        self._moved -= {queue_id}
        self._outages.works(self.topic)
        self._follow(stream)

    def _note_later(self, error: StreamError | OSError) -> None:
        """Log why a queue is not opened again yet, which is tried again."""
        retry_ms = getattr(error, "retry_after_ms", 1000)  # an OSError does not say
        self._reopen_ms = self.clock_ms() + retry_ms
        said = "queues of topic %s are not opened again yet; group %s waits for them: %s"
        self._outages.failed(self.topic, said, self.topic, self.group, error)

    def _follow(self, stream: MemberStream) -> None:
        """Have the stream filled, up to the limit of its part."""
        follower, end = self.session.follower, stream.visible
        part = follower.part(stream.queue_id, stream.next_queue_offset, end)
        if part != stream.part:
            stream.read_on(part)
        if self._may_attach and self._has_to_attach(stream):
            try:
                stream.attach()
            except ShardUnavailableError:
                self._may_attach = False
                raise

    def _has_to_attach(self, stream: MemberStream) -> bool:
        is_due = self.clock_ms() >= self._attach_ms.get(stream.queue_id, 0)
        return is_due and not stream.is_attached

    def _batches(self, stream: MemberStream, max_messages: int) -> list[ConsumedBatch]:
        """Return one batch, which may be empty and still move the group on, or none."""
        taken = stream.take_matches(max_messages)
        if taken is None:
            return []
        self._outages.works(stream.queue_id)
        entries, topic, queue_id = taken.entries, self.topic, stream.queue_id
        self.count(missed=taken.missed, collisions=taken.collisions, delivered=len(entries))
        return [ConsumedBatch(topic, queue_id, taken.next_queue_offset, entries, taken.reader)]

    def _begin(self, queue_id: int, bounds: QueueBounds) -> int:
        """Return where a group without an offset begins."""
        if self.start == "earliest":
            return bounds.minimum
        if self.start == "latest":
            return bounds.end
        found = self.node.messages.offset_at_time(self.topic, queue_id, self.start)
        return min(max(found, bounds.minimum), bounds.end)

    def _note(self, queue_id: int, error: StreamError | OSError) -> None:
        if isinstance(error, ShardUnavailableError):
            again_ms = self.clock_ms() + error.retry_after_ms
            if queue_id not in self.streams:  # the others are still read and attached
                self._reopen_ms = again_ms
            elif not self.streams[queue_id].is_attached:
                self._attach_ms[queue_id] = again_ms
            said = "%s/%d waits for group %s: %s"
            self._outages.failed(queue_id, said, self.topic, queue_id, self.group, error)
        else:
            self._error = self._error or error
