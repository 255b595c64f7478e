"""The topics in a store directory that is read without a node: a broker's, a shard's, or a copy.

Nothing is locked or written, so the directory may be in use. What its writer stored is seen at the
next look; a look opens the store again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rocketray.base.system_topics import is_internal_by_name
from rocketray.broker.fetching.read_plan import Bounds, DiskPlace, QueueKey
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.broker.topics.queue_views import open_queues, topics_in
from rocketray.runtime.files.restorations import restorations_of

from .time_search import first_in_view


class StoreTopics:
    """The source of the topics in *directory*; see ``TopicSource``.

    Only the catalog of a node's data directory knows ids of topics; elsewhere they are "".
    """

    poll_s = 1.0  # each look opens the store

    def __init__(self, directory: Path) -> None:
        self.where = str(directory)
        self._directory = directory
        self._found: Mapping[str, TopicConfig] = {}
        self._stores: dict[QueueKey, Path] = {}

    def known(self) -> Mapping[str, TopicConfig]:
        """See ``TopicSource``.

        Raises:
            StoreError: the directory is not a store.
        """
        catalog = TopicCatalog.load(self._directory).topics
        found = {}
        for name, ids in topics_in(self._directory).items():
            topic_id = catalog[name].topic_id if name in catalog else ""
            internal = is_internal_by_name(name)
            found[name] = TopicConfig(name, max(ids) + 1, (), topic_id, internal=internal)
        if found != self._found:
            self._found = found
        return self._found

    def bounds(
        self, topics: Sequence[TopicConfig], keys: Sequence[QueueKey]
    ) -> dict[QueueKey, Bounds]:
        found = dict.fromkeys(keys, Bounds(0, 0))  # without a message a queue may have no files
        for topic in topics:
            with open_queues(self._directory, topic.name) as views:
                for view in views:
                    key = topic.name, view.queue_id
                    if key in found:
                        gaps, restorations = view.reader.gaps, restorations_of(view.store)
                        found[key] = Bounds(view.minimum, view.maximum, gaps, restorations)
                        self._stores[key] = view.store
        return found

    def place(self, topic: TopicConfig, queue_id: int) -> DiskPlace:
        return DiskPlace(self._stores[topic.name, queue_id], is_store=True)

    def find_time(self, key: QueueKey, held: Bounds, time_ms: int) -> int | None:
        topic, queue_id = key
        with open_queues(self._directory, topic) as views:
            for view in views:
                if view.queue_id == queue_id:
                    return first_in_view(view, held, time_ms)
        return None
