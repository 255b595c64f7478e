"""The queues that a group member reads: opened when they are granted, given up when they are not.

The polling thread opens, reads and gives up; any thread may commit, count and ask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from rocketray.filters.counters import NO_COUNTERS, FilterCounters

from .consumed_batch import ConsumedBatch
from .filter_plan import PlanFollower
from .layout import control_path
from .match_ring import StreamDescription
from .member_options import StartFrom
from .queue_stream import QueueStream
from .start_offset import NextBegin, next_begin
from .watermark import ControlPage

__all__ = ["MemberQueues", "OnRevoke", "QueueNode"]

OnRevoke = Callable[[frozenset[tuple[str, int]]], None]


class QueueNode(Protocol):
    """The calls that reading a queue takes."""

    @property
    def data(self) -> Path:
        """The node's data directory."""

    def attach_stream(self, path: str) -> None:
        """Let the filter actor fill a ring."""

    def offset_at_time(self, topic: str, queue_id: int, time_ms: int) -> int:
        """The first message stored at that time or later, else the end."""


class Progress(NamedTuple):
    """What a heartbeat says of the queues."""

    read: frozenset[int]
    commits: dict[int, int]
    starts: dict[int, int]
    pulled: dict[int, int]


class MemberQueues:
    """What one member of *group* reads of *topic*."""

    def __init__(
        self,
        node: QueueNode,
        group: str,
        topic: str,
        *,
        start: StartFrom | int,
        follower: PlanFollower,
        doorbell: Path,
    ) -> None:
        """*start* is where a group begins that has no offset; *doorbell* is the member's."""
        self._node = node
        self._group = group
        self._topic = topic
        self._start = start
        self._follower = follower
        self._doorbell = doorbell
        self._lock = threading.Lock()
        self.streams: dict[int, QueueStream] = {}
        self._commits: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._counted = NO_COUNTERS  # of queues given up, and the member's own part

    def assignment(self) -> frozenset[tuple[str, int]]:
        """The (topic, queue id) pairs that are read."""
        return frozenset((self._topic, queue_id) for queue_id in tuple(self.streams))

    def commit(self, queue_id: int, next_queue_offset: int) -> None:
        """Everything of the queue below the offset is finished, if it is read here."""
        with self._lock:
            if queue_id in self.streams:
                self._commits[queue_id] = next_queue_offset
                self.streams[queue_id].finished = next_queue_offset

    def commit_again(self, granted: Mapping[int, int]) -> None:
        """Tell a coordinator that started again, from older offsets, what it was told before."""
        with self._lock:
            for queue_id, offset in granted.items():
                stream = self.streams.get(queue_id)
                if stream is not None and offset < stream.finished:
                    self._commits.setdefault(queue_id, stream.finished)

    def commit_later(self, commits: Mapping[int, int]) -> None:
        """These were taken for a report that nobody got."""
        with self._lock:
            self._commits = {**commits, **self._commits}

    def progress(self) -> Progress:
        """What is to be reported; commits are taken out."""
        with self._lock:
            commits, self._commits = self._commits, {}
            pulled = {each.queue_id: each.next_queue_offset for each in self.streams.values()}
            return Progress(frozenset(self.streams), commits, dict(self._starts), pulled)

    def counters(self) -> FilterCounters:
        """What the filter did for this member in all, and what became of the matches here."""
        with self._lock:
            return sum((each.ring.counters() for each in self.streams.values()), self._counted)

    def count(self, **numbers: int) -> None:
        """Add to the counters."""
        with self._lock:
            self._counted += FilterCounters(**numbers)

    # The polling thread's

    def adopt(self, granted: Mapping[int, int], on_revoke: OnRevoke | None) -> None:
        """Read what is granted, from these offsets on, and nothing else."""
        if granted.keys() != self.streams.keys():
            self.give_up(self.streams.keys() - granted.keys(), on_revoke)
            for queue_id in sorted(granted.keys() - self.streams.keys()):
                self._open(queue_id, granted[queue_id])
        for stream in self.streams.values():
            part = self._follower.part(stream.queue_id, stream.next_queue_offset, stream.visible)
            if part != stream.part:
                with self._lock:
                    self._counted += stream.read_on(part)
                self._node.attach_stream(str(stream.ring.path))

    def take(self, max_messages: int, skip: Container[int]) -> list[ConsumedBatch]:
        """Batches of what is there, at most *max_messages* of each queue that is not in *skip*."""
        batches = []
        for stream in list(self.streams.values()):
            stream.let_go()
            if stream.queue_id in skip:
                continue
            taken = stream.take(max_messages)
            if taken is not None:
                there = stream.secure(taken[0])
                entries = stream.exact(there)
                if len(taken[0]):
                    self.count(
                        missed=len(taken[0]) - len(there),
                        collisions=len(there) - len(entries),
                        delivered=len(entries),
                    )
                batches.append(
                    ConsumedBatch(self._topic, stream.queue_id, taken[1], entries, stream.reader)
                )
        return batches

    def give_up(self, queue_ids: set[int], on_revoke: OnRevoke | None) -> None:
        """Read these no more; *on_revoke* hears of them while they still count as read."""
        if not queue_ids:
            return
        for queue_id in queue_ids:
            self.streams[queue_id].ring.close()
        if on_revoke is not None:
            on_revoke(frozenset((self._topic, queue_id) for queue_id in queue_ids))
        with self._lock:
            for queue_id in queue_ids:
                stream = self.streams.pop(queue_id)
                self._commits.setdefault(queue_id, stream.finished)  # for one that started again
                self._follower.forget(queue_id)
                self._counted += stream.ring.counters()
                stream.reader.close()

    def _open(self, queue_id: int, offset: int) -> None:
        control = ControlPage(control_path(self._node.data, self._topic, queue_id))
        if offset < 0:
            begin = NextBegin(self._begin(queue_id, control))
        else:
            begin = next_begin(offset, control.minimum(), control.visible())
        begin.log(self._group, self._topic, queue_id, offset)
        start = begin.queue_offset
        subscription, stop = self._follower.part(queue_id, start, control.visible)
        description = StreamDescription(
            self._topic, queue_id, self._group, subscription, start, str(self._doorbell), stop
        )
        stream = QueueStream(self._node.data, description)
        with self._lock:
            self.streams[queue_id] = stream
            self._counted += FilterCounters(missed=begin.missed)
            if start != offset:
                self._commits[queue_id] = start  # a member that dies now must not skip or repeat
            if offset < 0:
                self._starts[queue_id] = start
        self._node.attach_stream(str(stream.ring.path))

    def _begin(self, queue_id: int, control: ControlPage) -> int:
        """Where a group begins that has no offset."""
        if self._start == "earliest":
            return control.minimum()
        if self._start == "latest":
            return control.visible()
        found = self._node.offset_at_time(self._topic, queue_id, self._start)
        return min(max(found, control.minimum()), control.visible())
