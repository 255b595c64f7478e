"""The faults that a test may have in its node: what fails, is lost, restarts or is silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rocketray.broker.filtering.engine import FilterEngine
from rocketray.broker.topics.process_names import SHARED_PROCESS
from rocketray.store.retention import DiskUse

from .member import Member
from .node import EMPTY_DISK, shards_of
from .stepped_node import SteppedNode

_FULL_DISK = DiskUse(used=99 << 20, free=1 << 20)  # 99 %: beyond all limits of store/retention.py


class Faults:
    """The faults of one node."""

    def __init__(self, stepped: SteppedNode) -> None:
        self._stepped = stepped
        self._node = stepped.node

    def fail_appends(self, count: int, topic: str, queue_id: int = 0) -> None:
        """Refuse the next *count* batches for a queue, as after a disk error."""
        self._stepped.faults[topic, queue_id].failing = count

    def lose_acks(self, count: int, topic: str, queue_id: int = 0) -> None:
        """Store the next *count* batches for a queue, and lose their acknowledgements."""
        self._stepped.faults[topic, queue_id].losing_acks = count

    @contextmanager
    def shard_down(self, topic: str, queue_id: int = 0) -> Iterator[None]:
        """Make a shard unavailable for the block; it recovers its store at the end."""
        faults = self._stepped.faults[topic, queue_id]
        faults.is_down = True
        try:
            yield
        finally:
            self.restart_shard(topic, queue_id)
            faults.is_down = False

    def restart_shard(self, topic: str, queue_id: int = 0) -> None:
        """Restart the process of a shard, with its other shards and the services that it runs."""
        node = self._node
        with self._stepped.lock:
            config = node.topics.get(topic)
            name = config.process_of(queue_id)
            if name == SHARED_PROCESS and "services" in vars(node):
                node.services.close()
                del node.services
            node.end_process(name)
            node.open_shards(config, range(config.queues))
            self._stepped.stored()

    @contextmanager
    def disk_full(self) -> Iterator[None]:
        """Let all shards refuse messages for the block, as on a full disk."""
        self._watch_disk(_FULL_DISK)
        try:
            yield
        finally:
            self._watch_disk(EMPTY_DISK)

    def restart_filter(self) -> None:
        """Restart the filter; it resumes the streams where the old one stopped."""
        node = self._node
        with self._stepped.lock:
            node.filter.close()
            node.filter = FilterEngine(node.data, node.rules)
            node.filter.attach_all()
            self._stepped.step()

    def restart_coordinator(self) -> None:
        """Restart the coordinator; it loses reports since it last saved offsets."""
        with self._stepped.lock:
            self._node.load_state()
            self._stepped.restless()

    def crash(self, member: Member) -> None:
        """End a member like a killed process: its group does not notice for ten seconds.

        Its uncommitted messages are redelivered to another member.
        """
        with self._stepped.lock:
            member.crash()
            self._stepped.step()
            self._stepped.restless()

    def silence(self, member: Member, *, seconds: float) -> None:
        """Drop the heartbeats of a member for that time, without its knowledge."""
        member.silent_until_ms = self._stepped.clock() + round(1000 * seconds)
        # Until after the silence: its queues are reassigned in it, and again when it returns.
        self._stepped.restless(max(self._stepped.clock(), member.silent_until_ms))

    def _watch_disk(self, disk: DiskUse) -> None:
        self._stepped.disk = disk
        for topic in self._node.topics.all():
            for shard in shards_of(self._node, topic):
                shard.writer.watch_disk(disk)
