"""The queues of some topics on this machine: which there are and how far they go.

Reads the catalog and the shards' control pages, so it needs no running node. A queue whose shard
has never run has no files yet: it is empty. New queues are seen as soon as the catalog has them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocketray.actors.catalog import TopicCatalog
from rocketray.actors.control_view import ControlView
from rocketray.actors.layout import config_directory, control_path

from .offsets import Bounds, QueueKey

__all__ = ["TopicQueues"]

_POLL_S = 0.01  # a micro-batch takes ten times as long; some microseconds of work a turn


class TopicQueues:
    """The queues of *topics* in a data directory. One thread uses it."""

    def __init__(self, data: Path, topics: Sequence[str]) -> None:
        """Look the topics up.

        Raises:
            TopicNotFoundError: one of them is not in the catalog.
        """
        self._data = data
        self._topics = topics
        self._catalog_version: tuple[int, int] | None = None
        self._keys: list[QueueKey] = []
        self._pages: dict[QueueKey, ControlView] = {}
        self.keys()

    def keys(self) -> list[QueueKey]:
        """All queues that the topics have now."""
        version = self._read_catalog_version()
        if version is None or version != self._catalog_version:
            catalog = TopicCatalog.load(self._data)
            counts = {topic: catalog.get(topic).queues for topic in self._topics}
            self._keys = [(topic, queue) for topic in counts for queue in range(counts[topic])]
            self._catalog_version = version
            self._pages.clear()  # a topic may have been made anew under its old name
        return self._keys

    def bounds(self) -> dict[QueueKey, Bounds]:
        """What each queue holds now."""
        return {key: self._bounds_of(key) for key in self.keys()}

    def ends(self) -> dict[QueueKey, int]:
        """The queue offset after the last readable message of each queue."""
        return {key: held.visible for key, held in self.bounds().items()}

    def wait_for_more(self, seen: Mapping[QueueKey, int], timeout_s: float) -> None:
        """Return when a queue goes beyond what was *seen* of it, or when the time is over."""
        deadline = time.monotonic() + timeout_s
        while all(end <= seen.get(key, 0) for key, end in self.ends().items()):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(_POLL_S, left))

    def _bounds_of(self, key: QueueKey) -> Bounds:
        page = self._page(key)
        if page is None:
            return Bounds(0, 0)
        minimum = page.minimum()
        return Bounds(minimum, max(minimum, page.visible()))

    def _page(self, key: QueueKey) -> ControlView | None:
        page = self._pages.get(key)
        if page is None:
            try:
                page = ControlView(control_path(self._data, *key))
            except FileNotFoundError:
                return None
            self._pages[key] = page
        return page

    def _read_catalog_version(self) -> tuple[int, int] | None:
        try:
            status = (config_directory(self._data) / "topics.json").stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_ino
