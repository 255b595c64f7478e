"""Topics of a cluster, looked up by calls over Ray: the catalog, and the bounds on each disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rocketray.actors.api.node_client import NodeClient
from rocketray.actors.client.connection import Connection
from rocketray.actors.fetching.bounds import keys_of
from rocketray.actors.fetching.range_api import DiskQueues
from rocketray.actors.fetching.read_plan import Bounds, DiskPlace, QueueKey
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.cluster import Cluster
from rocketray.errors import TopicNotFoundError

__all__ = ["ClusterTopics"]


class ClusterTopics:
    """The source of the topics *names* of a running cluster; see ``TopicSource``."""

    poll_s = 0.05  # a look costs a call for the catalog, and one for each disk

    def __init__(self, node: Path | Cluster, names: Sequence[str]) -> None:
        """Join its Ray.

        Raises:
            NodeNotRunningError: it does not run. NodeElsewhereError: it runs on another machine,
                and *node* is a directory.
        """
        self._connection = Connection.to(node)
        self._where = f"cluster {node.name}" if isinstance(node, Cluster) else str(node)
        self._names = names
        self._clients: dict[str, NodeClient] = {}
        self._disks: dict[str, DiskQueues] = {}

    def topics(self) -> list[TopicConfig]:
        """See ``TopicSource``."""
        known = self._connection.topics.all()
        for name in self._names:
            if name not in known:
                raise TopicNotFoundError(name, self._where)
        return [known[name] for name in self._names]

    def bounds(self, topics: Sequence[TopicConfig]) -> dict[QueueKey, Bounds]:
        """See ``TopicSource``.

        Raises:
            ShardUnavailableError: a disk with queues of them does not answer.
        """
        queues: dict[str, list[QueueKey]] = {}
        for topic in topics:
            for disk, ids in topic.by_disk().items():
                queues.setdefault(disk, []).extend((topic.name, queue_id) for queue_id in ids)
        self._disks = {disk: self._at(disk).ranges.look(keys) for disk, keys in queues.items()}
        held = {key: one for disk in self._disks.values() for key, one in disk.bounds.items()}
        return {key: held[key] for key in keys_of(topics)}

    def _at(self, disk: str) -> NodeClient:
        if disk not in self._clients:
            self._clients[disk] = self._connection.at(disk)
        return self._clients[disk]

    def place(self, topic: TopicConfig, queue_id: int) -> DiskPlace:
        """See ``TopicSource``."""
        return self._disks[topic.disk_of(queue_id)].place
