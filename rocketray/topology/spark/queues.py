"""The queues of some topics on this machine: which there are and how far they go.

Reads the catalog and the shards' control pages, so it needs no running node. A queue whose shard
has never run has no files yet: it is empty. New queues are seen as soon as the catalog has them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocketray.actors.catalog import TopicCatalog
from rocketray.actors.layout import config_directory, control_path
from rocketray.actors.watermark import ControlPage

from .offsets import Bounds, QueueKey

__all__ = ["TopicQueues"]

_WAIT_SLICE_S = 0.02  # how late a message in another queue than the watched one is seen


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
        self._pages: dict[QueueKey, ControlPage] = {}
        self.keys()

    def keys(self) -> list[QueueKey]:
        """All queues that the topics have now."""
        version = self._read_catalog_version()
        if version is None or version != self._catalog_version:
            catalog = TopicCatalog.load(self._data)
            counts = {topic: catalog.get(topic).queues for topic in self._topics}
            self._keys = [(topic, queue) for topic in counts for queue in range(counts[topic])]
            self._catalog_version = version
        return self._keys

    def bounds(self) -> dict[QueueKey, Bounds]:
        """What each queue holds now."""
        return {key: self._bounds_of(key) for key in self.keys()}

    def ends(self) -> dict[QueueKey, int]:
        """The queue offset after the last readable message of each queue."""
        return {key: held.visible for key, held in self.bounds().items()}

    def wait_for_more(self, seen: Mapping[QueueKey, int], timeout_s: float) -> None:
        """Return when a queue goes beyond what was *seen* of it, or when the time is over.

        Sleeps on the queues in turn, so a message in any of them is noticed within 20 ms.
        """
        deadline = time.monotonic() + timeout_s
        turn = 0
        while all(end <= seen.get(key, 0) for key, end in self.ends().items()):
            left = min(_WAIT_SLICE_S, deadline - time.monotonic())
            if left <= 0:
                return
            self._sleep_on(turn, seen, left)
            turn += 1

    def _sleep_on(self, turn: int, seen: Mapping[QueueKey, int], timeout_s: float) -> None:
        pages = list(self._pages.items())
        if not pages:
            time.sleep(timeout_s)
            return
        key, page = pages[turn % len(pages)]
        page.wait_visible(seen.get(key, 0), timeout_s)

    def _bounds_of(self, key: QueueKey) -> Bounds:
        page = self._page(key)
        if page is None:
            return Bounds(0, 0)
        minimum = page.minimum()
        return Bounds(minimum, max(minimum, page.visible()))

    def _page(self, key: QueueKey) -> ControlPage | None:
        page = self._pages.get(key)
        if page is None:
            try:
                page = ControlPage(control_path(self._data, *key))
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
