"""The queues of some topics on this machine, and their ends.

Reads the catalog and the shards' control pages, so it needs no running node. A queue whose shard
has never run has no files yet: it is empty. New queues are seen as soon as the catalog has them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocketray.actors.fetching.read_plan import Bounds, QueueKey
from rocketray.actors.files.paths import config_directory, control_path, identity_file
from rocketray.actors.ipc.control_page_reader import ControlView
from rocketray.actors.topics.catalog import TopicCatalog, TopicConfig
from rocketray.data_directory import DATA_VARIABLE
from rocketray.errors import ConfigError, NodeElsewhereError, TopicNotFoundError

__all__ = ["TopicQueues"]

_POLL_S = 0.01  # a micro-batch takes ten times as long; a turn costs some microseconds


class TopicQueues:
    """The queues of *topics* in a data directory. One thread uses it."""

    def __init__(self, data: Path, topics: Sequence[str]) -> None:
        """Look the topics up.

        Raises:
            TopicNotFoundError: one of them is not in the catalog.
            NodeElsewhereError: one has queues on other disks.
            ConfigError: no node has ever run on the directory.
        """
        self._data = data
        self._topics = topics
        self._catalog_version: tuple[int, int] | None = None
        self._keys: list[QueueKey] = []
        self._topic_ids: dict[str, str] = {}
        self._pages: dict[QueueKey, ControlView] = {}
        self.keys()

    def keys(self) -> list[QueueKey]:
        """Return all queues that the topics have now."""
        version = self._read_catalog_version()
        if version is None or version != self._catalog_version:
            found = self._look_up()
            self._keys = [(topic.name, queue) for topic in found for queue in range(topic.queues)]
            self._topic_ids = {topic.name: topic.topic_id for topic in found}
            self._catalog_version = version
            self._pages.clear()  # a topic may have been created again under its old name
        return self._keys

    def topic_ids(self) -> dict[str, str]:
        """Return the id of each topic; a topic that was deleted and created again has a new one."""
        self.keys()
        return dict(self._topic_ids)

    def bounds(self) -> dict[QueueKey, Bounds]:
        """Return the range that each queue holds now."""
        return {key: self._bounds_of(key) for key in self.keys()}

    def ends(self) -> dict[QueueKey, int]:
        """Return the queue offset after the last readable message of each queue."""
        return {key: held.visible for key, held in self.bounds().items()}

    def wait_for_more(self, seen: Mapping[QueueKey, int], timeout_s: float) -> None:
        """Return when a queue goes beyond its end in *seen*, or after *timeout_s*."""
        deadline = time.monotonic() + timeout_s
        while all(end <= seen.get(key, 0) for key, end in self.ends().items()):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(_POLL_S, left))

    def _look_up(self) -> list[TopicConfig]:
        catalog = TopicCatalog.load(self._data)
        is_node = identity_file(self._data).exists() or self._read_catalog_version() is not None
        if not catalog.topics and not is_node:  # directories of earlier releases have no identity
            raise ConfigError(
                f"topic {self._topics[0]!r}: {self._data} is not a node's data directory; start "
                f"its node (rocketray start --data {self._data}), or name its data directory: with "
                f".option('data', …) of a read, data= of a SinkHost, or {DATA_VARIABLE} in the "
                "environment"
            )
        for name in self._topics:
            if name not in catalog.topics:
                raise TopicNotFoundError(name, str(self._data))
            if catalog.topics[name].disks:
                raise NodeElsewhereError(
                    f"topic {name!r} has queues on several disks, and Spark reads those of one "
                    f"directory ({self._data}) only: that is not supported yet; see where they "
                    "are with: rocketray topology"
                )
        return [catalog.topics[name] for name in self._topics]

    def _bounds_of(self, key: QueueKey) -> Bounds:
        try:
            page = self._pages.get(key) or ControlView(control_path(self._data, *key))
        except FileNotFoundError:
            return Bounds(0, 0)
        self._pages[key] = page
        minimum = page.minimum()
        return Bounds(minimum, max(minimum, page.visible()))

    def _read_catalog_version(self) -> tuple[int, int] | None:
        try:
            status = (config_directory(self._data) / "topics.json").stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_ino
