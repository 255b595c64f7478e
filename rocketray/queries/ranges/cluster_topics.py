"""Topics of a cluster, looked up by calls: the catalog, and the bounds on each disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rocketray.actors.client.connected_client import open_client
from rocketray.base.cluster import Cluster
from rocketray.broker.fetching.range_api import DiskQueues
from rocketray.broker.fetching.read_plan import Bounds, DiskPlace, QueueKey
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.messaging.api.node_client import NodeClient


class ClusterTopics:
    """The source of the topics of a running cluster; see ``TopicSource``."""

    poll_s = 0.05  # a look costs a call for the catalog, and one for each disk

    def __init__(self, node: Path | Cluster) -> None:
        """Connect to it.

        Raises:
            NodeNotRunningError: it does not run. NodeElsewhereError: it runs on another machine,
                and *node* is a directory.
        """
        self._connection = open_client(node)
        self.where = f"cluster {node.name}" if isinstance(node, Cluster) else str(node)
        self._clients: dict[str, NodeClient] = {}
        self._disks: dict[str, DiskQueues] = {}

    def known(self) -> Mapping[str, TopicConfig]:
        return self._connection.topics.all()

    def bounds(
        self, topics: Sequence[TopicConfig], keys: Sequence[QueueKey]
    ) -> dict[QueueKey, Bounds]:
        """See ``TopicSource``.

        Raises:
            ShardUnavailableError: a disk with queues of them does not answer.
        """
        disk_of = {topic.name: topic.disk_of for topic in topics}
        queues: dict[str, list[QueueKey]] = {}
        for name, queue_id in keys:
            queues.setdefault(disk_of[name](queue_id), []).append((name, queue_id))
        self._disks = {disk: self._at(disk).ranges.look(found) for disk, found in queues.items()}
        held = {key: one for disk in self._disks.values() for key, one in disk.bounds.items()}
        return {key: held[key] for key in keys}

    def place(self, topic: TopicConfig, queue_id: int) -> DiskPlace:
        return self._disks[topic.disk_of(queue_id)].place

    def find_time(self, key: QueueKey, held: Bounds, time_ms: int) -> int | None:
        """See ``TopicSource``.

        Raises:
            ShardUnavailableError: the shard of the queue does not answer.
        """
        found = self._connection.messages.offset_at_time(*key, time_ms)
        return found if found < held.visible else None

    def _at(self, disk: str) -> NodeClient:
        if disk not in self._clients:
            self._clients[disk] = self._connection.at(disk)
        return self._clients[disk]
