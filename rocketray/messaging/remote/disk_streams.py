"""The streams of a member of a topic whose queues are on several disks: mapped here, else fetched.

The queues of a disk on the member's machine are mapped; those of another disk are fetched from its
gateway. All ring one bell. The sources are created as the member gets queues on their disks. The
stream of a queue that was moved is opened again on its new disk (:meth:`DiskStreams.follow`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rocketray.broker.topics.catalog import TopicConfig
from rocketray.groups.filter_plan import QueuePart
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.consumers.queue_stream import QueueStreams, member_bell
from rocketray.messaging.consumers.stream_source import (
    MemberBell,
    MemberStream,
    QueueBounds,
    StreamSource,
)
from rocketray.runtime.files.runtime_lock import RuntimeMark
from rocketray.runtime.ipc.control_page import Doorbell

from .fetch_api import FetchApi
from .fetched_streams import FetchedStreams, LocalBell

LOOK_S = 0.1
"""After that time it is seen that a node was started again."""


class DiskStreams:
    """The streams of one member of *group*; see ``StreamSource``."""

    def __init__(
        self,
        node: NodeClient,
        group: str,
        topic: TopicConfig,
        gateway: Callable[[str], FetchApi],
    ) -> None:
        """Take *gateway*, which returns the calls of a disk's gateway, and has it started."""
        self._node = node
        self._group = group
        self._topic = topic
        self._gateway = gateway
        self._sources: dict[str, StreamSource] = {}
        self._is_started = False
        self._marks: list[RuntimeMark] = []  # of the disks on this machine
        self._is_left = False
        self._look_at_s = 0.0
        self._doorbell: Doorbell | None = None
        self.bell: MemberBell = LocalBell()
        """Rung when a stream has matches, or may raise."""
        self._hang_bell()

    def start(self) -> None:
        """Start the threads of the sources, of later ones too."""
        self._is_started = True
        for source in self._sources.values():
            source.start()

    def bounds(self, queue_id: int) -> QueueBounds:
        return self._source(queue_id).bounds(queue_id)

    def is_left_behind(self) -> bool:
        """Return whether a node of this machine was started again: its rings are new ones.

        It looks once in ``LOOK_S``, as each poll asks, and looking takes longer than a poll.
        """
        now_s = time.monotonic()
        if not self._is_left and now_s >= self._look_at_s:
            self._is_left = any(mark.is_left_behind() for mark in self._marks)
            self._look_at_s = now_s + LOOK_S
        return self._is_left

    def follow(self, moves: int) -> frozenset[int]:
        """Look up where the queues are, if one was moved since; return those to open again.

        If a node of this machine was started again, these are all queues; also if a queue was moved
        more than once: where it is again, its files are other ones.

        Raises:
            ShardUnavailableError: the coordinator does not answer; the next call asks again.
        """
        before = self._topic
        if self.is_left_behind():
            self._topic = self._node.topics.get(before.name)
            sources, self._sources = self._sources, {}
            self._hang_bell()
            for source in sources.values():
                source.close()
            return frozenset(range(self._topic.queues))
        if moves <= before.moves:
            return frozenset()
        self._topic = self._node.topics.get(before.name)
        known = range(min(before.queues, self._topic.queues))
        moved = [at for at in known if before.disk_of(at) != self._topic.disk_of(at)]
        # Fewer than the moves: some were moved away and back, and which ones does not show.
        if len(moved) < self._topic.moves - before.moves:
            moved = [*known]
        return frozenset(moved)

    def open(self, queue_id: int, part: QueuePart, start: int) -> MemberStream:
        return self._source(queue_id).open(queue_id, part, start)

    def close(self) -> None:
        for source in self._sources.values():
            source.close()
        if self._doorbell is not None:
            self._doorbell.unlink()

    def _hang_bell(self) -> None:
        """Take a new bell, on a disk of this machine that has queues of the topic, if any."""
        disks = map(self._node.at, self._topic.by_disk())
        here = [place for place in disks if place.is_local()]
        self._marks, self._is_left = [RuntimeMark(place.data) for place in here], False
        self._doorbell = member_bell(here[0]) if here else None
        self.bell = self._doorbell or LocalBell()

    def _source(self, queue_id: int) -> StreamSource:
        if queue_id >= self._topic.queues:  # the topic has got more since
            self._topic = self._node.topics.get(self._topic.name)
        disk = self._topic.disk_of(queue_id)
        if disk not in self._sources:
            source = self._new_source(disk)
            if self._is_started:
                source.start()
            self._sources[disk] = source
        return self._sources[disk]

    def _new_source(self, disk: str) -> StreamSource:
        place = self._node.at(disk)
        if self._doorbell is not None and place.is_local():
            return QueueStreams(place, self._group, self._topic.name, self._doorbell)
        return FetchedStreams(self._gateway(disk), self._group, self._topic.name, bell=self.bell)
