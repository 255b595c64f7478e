"""The queues of some topics: their ends, and where their files are.

Where all are on the disk of the node's data directory, its files are read, and no node has to run.
Topics with queues on several disks, and those of a cluster that is named, are looked up by calls:
then this process joins the cluster's Ray.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rocketray.base.cluster import CLUSTER_VARIABLE, Cluster
from rocketray.base.data_directory import DATA_VARIABLE
from rocketray.broker.fetching.bounds import QueuePages
from rocketray.broker.fetching.read_plan import Bounds, DiskPlace, QueueKey
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.errors import ConfigError, StoreError, TopicNotFoundError
from rocketray.runtime.files.paths import config_directory, identity_file, shard_directory

from .offset_rules import OffsetRule, QueueOffsets, resolve_rule
from .planning import count_waiting
from .time_rules import TimeRule, offsets_at
from .topic_choice import TopicChoice


class TopicSource(Protocol):
    """Where topics are looked up. One thread uses it."""

    where: str
    """The name of the place, for errors."""
    poll_s: float
    """The time between two looks, while there is nothing new."""

    def known(self) -> Mapping[str, TopicConfig]:
        """Return all topics as they are now; the same object as before if nothing has changed."""

    def bounds(
        self, topics: Sequence[TopicConfig], keys: Sequence[QueueKey]
    ) -> dict[QueueKey, Bounds]:
        """Return the range that each queue of *keys*, which are of *topics*, holds now."""

    def place(self, topic: TopicConfig, queue_id: int) -> DiskPlace:
        """Return where a queue is, of which the bounds were asked."""

    def find_time(self, key: QueueKey, held: Bounds, time_ms: int) -> int | None:
        """Return the first message of a queue that was stored at *time_ms* or later, if any."""


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """A store directory that is read without a node."""

    path: Path


class TopicQueues:
    """The queues of the chosen topics of a node, or of a store. One thread uses it."""

    def __init__(self, node: Path | Cluster | StoreDirectory, choice: TopicChoice) -> None:
        """Look the topics up.

        Raises:
            TopicNotFoundError: one of them is not in the catalog.
            NodeNotRunningError: they are on several disks, and their cluster does not run.
            ConfigError: no node has ever run on the directory. StoreError: it is not a store.
        """
        self._node = node
        self._choice = choice
        self._source = _opened(node)
        self._known: Mapping[str, TopicConfig] | None = None
        self._topics: list[TopicConfig] = []
        self._look_up()

    def topic_ids(self) -> dict[str, str]:
        """Return the id of each topic; a topic that was deleted and created again has a new one."""
        return {topic.name: topic.topic_id for topic in self._look_up()}

    def bounds(self) -> dict[QueueKey, Bounds]:
        topics = self._look_up()
        return self._source.bounds(topics, self._choice.keys(topics))

    def ends(self) -> dict[QueueKey, int]:
        """Return the queue offset after the last readable message of each queue."""
        return {key: held.visible for key, held in self.bounds().items()}

    def place(self, key: QueueKey) -> DiskPlace:
        """Return where a queue was at the last call of :meth:`bounds`."""
        name, queue_id = key
        (topic,) = (each for each in self._topics if each.name == name)
        return self._source.place(topic, queue_id)

    def offsets(
        self, rule: OffsetRule | TimeRule, option: str, bounds: Mapping[QueueKey, Bounds]
    ) -> QueueOffsets:
        """Return what a start or end means for each queue, which has just those *bounds*.

        Raises:
            ConfigError: it names a queue that is not chosen, or a time that is too late for one.
            OffsetOutOfRangeError: it names an offset that the queue does not hold.
        """
        if isinstance(rule, TimeRule):
            rule = offsets_at(rule, bounds, self._source.find_time)
        return resolve_rule(rule, bounds, option)

    def wait_for_more(self, seen: Mapping[QueueKey, int], timeout_s: float, least: int = 1) -> None:
        """Return when there are *least* messages behind *seen*, or after *timeout_s*."""
        deadline = time.monotonic() + timeout_s
        while count_waiting(seen, self.bounds()) < least:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(self._source.poll_s, left))

    def _look_up(self) -> list[TopicConfig]:
        self._choose()
        if isinstance(self._source, _DirectorySource) and any(each.disks for each in self._topics):
            assert isinstance(self._node, Path)
            self._source = _connected(self._node)
            self._choose()
        return self._topics

    def _choose(self) -> None:
        known, where = self._source.known(), self._source.where
        if known is self._known:
            return
        try:
            self._topics = self._choice.among(known, where)
        except TopicNotFoundError as error:
            if not isinstance(self._node, StoreDirectory):
                raise
            raise StoreError(
                f"{where} has no topic {error.topic!r}; see: rocketray store topics {where}"
            ) from None
        self._known = known


def _opened(node: Path | Cluster | StoreDirectory) -> TopicSource:
    if isinstance(node, StoreDirectory):
        from .store_topics import StoreTopics  # noqa: PLC0415 - loads kernels

        return StoreTopics(node.path)
    return _connected(node) if isinstance(node, Cluster) else _DirectorySource(node)


def _connected(node: Path | Cluster) -> TopicSource:
    from .cluster_topics import ClusterTopics  # noqa: PLC0415 - loads kernels, and Ray

    return ClusterTopics(node)


class _DirectorySource:
    """Topics in the catalog of a data directory, and the control pages of their shards there."""

    poll_s = 0.01  # a micro-batch takes ten times as long; a turn costs some microseconds

    def __init__(self, data: Path) -> None:
        self.where = str(data)
        self._data = data
        self._version: tuple[int, int] | None = None
        self._found: Mapping[str, TopicConfig] = {}
        self._pages = QueuePages(data)

    def known(self) -> Mapping[str, TopicConfig]:
        version = self._catalog_version()
        if version is None or version != self._version:
            self._found = self._read()
            self._version = version
            self._pages.forget()
        return self._found

    def bounds(
        self, topics: Sequence[TopicConfig], keys: Sequence[QueueKey]
    ) -> dict[QueueKey, Bounds]:
        # A queue whose shard has never run has no files: it is empty.
        del topics
        return {key: self._pages.find(key) or Bounds(0, 0) for key in keys}

    def place(self, topic: TopicConfig, queue_id: int) -> DiskPlace:
        del topic, queue_id
        return DiskPlace(self._data)

    def find_time(self, key: QueueKey, held: Bounds, time_ms: int) -> int | None:
        if held.minimum == held.visible:
            return None
        from .time_search import find_in_queue  # noqa: PLC0415 - loads kernels

        return find_in_queue(shard_directory(self._data, *key), key, held, time_ms)

    def _read(self) -> Mapping[str, TopicConfig]:
        catalog = TopicCatalog.load(self._data)
        is_node = identity_file(self._data).exists() or self._catalog_version() is not None
        if not catalog.topics and not is_node:  # directories of earlier releases have no identity
            raise ConfigError(
                f"{self._data} is not a node's data directory; start its node (rocketray start "
                f"--data {self._data}), or name its data directory: with .option('data', …) of a "
                f"read, data= of a SinkHost, or {DATA_VARIABLE} in the environment; a cluster on "
                f"another machine is found by its name: cluster, or {CLUSTER_VARIABLE}"
            )
        return catalog.topics

    def _catalog_version(self) -> tuple[int, int] | None:
        try:
            # The file is replaced as a whole, so a new version has another inode, also within one
            # tick of the file system's clock.
            status = (config_directory(self._data) / "topics.json").stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_ino
