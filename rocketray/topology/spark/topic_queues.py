"""The queues of some topics: their ends, and where their files are.

Where all are on the disk of the node's data directory, its files are read, and no node has to run.
Topics with queues on several disks, and those of a cluster that is named, are looked up by calls:
then this process joins the cluster's Ray.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rocketray.actors.fetching.bounds import QueuePages, keys_of
from rocketray.actors.fetching.read_plan import Bounds, DiskPlace, QueueKey
from rocketray.actors.files.paths import config_directory, identity_file
from rocketray.actors.topics.catalog import TopicCatalog, TopicConfig
from rocketray.cluster import CLUSTER_VARIABLE, Cluster
from rocketray.data_directory import DATA_VARIABLE
from rocketray.errors import ConfigError, TopicNotFoundError

__all__ = ["TopicQueues", "TopicSource"]


class TopicSource(Protocol):
    """Where topics are looked up. One thread uses it."""

    poll_s: float
    """The time between two looks, while there is nothing new."""

    def topics(self) -> list[TopicConfig]:
        """Return the topics as they are now; raise TopicNotFoundError if there is no such one."""

    def bounds(self, topics: Sequence[TopicConfig]) -> dict[QueueKey, Bounds]:
        """Return the range that each queue of *topics* holds now."""

    def place(self, topic: TopicConfig, queue_id: int) -> DiskPlace:
        """Return where a queue is, of which the bounds were asked."""


class TopicQueues:
    """The queues of *topics* of a node. One thread uses it."""

    def __init__(self, node: Path | Cluster, topics: Sequence[str]) -> None:
        """Look the topics up.

        Raises:
            TopicNotFoundError: one of them is not in the catalog.
            NodeNotRunningError: they are on several disks, and their cluster does not run.
            ConfigError: no node has ever run on the directory.
        """
        self._node = node
        self._names = tuple(topics)
        self._source: TopicSource = (
            _connected(node, self._names)
            if isinstance(node, Cluster)
            else _DirectorySource(node, self._names)
        )
        self._topics: list[TopicConfig] = []
        self._look_up()

    def topic_ids(self) -> dict[str, str]:
        """Return the id of each topic; a topic that was deleted and created again has a new one."""
        return {topic.name: topic.topic_id for topic in self._look_up()}

    def bounds(self) -> dict[QueueKey, Bounds]:
        """Return the range that each queue holds now."""
        return self._source.bounds(self._look_up())

    def ends(self) -> dict[QueueKey, int]:
        """Return the queue offset after the last readable message of each queue."""
        return {key: held.visible for key, held in self.bounds().items()}

    def place(self, key: QueueKey) -> DiskPlace:
        """Return where a queue was at the last call of :meth:`bounds`."""
        name, queue_id = key
        (topic,) = (each for each in self._topics if each.name == name)
        return self._source.place(topic, queue_id)

    def wait_for_more(self, seen: Mapping[QueueKey, int], timeout_s: float) -> None:
        """Return when a queue goes beyond its end in *seen*, or after *timeout_s*."""
        deadline = time.monotonic() + timeout_s
        while all(end <= seen.get(key, 0) for key, end in self.ends().items()):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(self._source.poll_s, left))

    def _look_up(self) -> list[TopicConfig]:
        self._topics = self._source.topics()
        if isinstance(self._source, _DirectorySource) and any(each.disks for each in self._topics):
            self._source = _connected(self._node, self._names)
            self._topics = self._source.topics()
        return self._topics


def _connected(node: Path | Cluster, topics: Sequence[str]) -> TopicSource:
    from .cluster_topics import ClusterTopics  # noqa: PLC0415 - loads kernels, and Ray

    return ClusterTopics(node, topics)


class _DirectorySource:
    """Topics in the catalog of a data directory, and the control pages of their shards there."""

    poll_s = 0.01  # a micro-batch takes ten times as long; a turn costs some microseconds

    def __init__(self, data: Path, topics: Sequence[str]) -> None:
        self._data = data
        self._names = topics
        self._version: tuple[int, int] | None = None
        self._found: list[TopicConfig] = []
        self._pages = QueuePages(data)

    def topics(self) -> list[TopicConfig]:
        version = self._catalog_version()
        if version is None or version != self._version:
            self._found = self._read()
            self._version = version
            self._pages.forget()
        return self._found

    def bounds(self, topics: Sequence[TopicConfig]) -> dict[QueueKey, Bounds]:
        # A queue whose shard has never run has no files: it is empty.
        return {key: self._pages.find(key) or Bounds(0, 0) for key in keys_of(topics)}

    def place(self, topic: TopicConfig, queue_id: int) -> DiskPlace:
        del topic, queue_id
        return DiskPlace(self._data)

    def _read(self) -> list[TopicConfig]:
        catalog = TopicCatalog.load(self._data)
        is_node = identity_file(self._data).exists() or self._catalog_version() is not None
        if not catalog.topics and not is_node:  # directories of earlier releases have no identity
            raise ConfigError(
                f"topic {self._names[0]!r}: {self._data} is not a node's data directory; start "
                f"its node (rocketray start --data {self._data}), or name its data directory: with "
                f".option('data', …) of a read, data= of a SinkHost, or {DATA_VARIABLE} in the "
                "environment; a cluster on another machine is found by its name: cluster, or "
                f"{CLUSTER_VARIABLE}"
            )
        for name in self._names:
            if name not in catalog.topics:
                raise TopicNotFoundError(name, str(self._data))
        return [catalog.topics[name] for name in self._names]

    def _catalog_version(self) -> tuple[int, int] | None:
        try:
            status = (config_directory(self._data) / "topics.json").stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_ino
