"""The topics of the coordinator: the catalog in force, and its changes.

A change is on disk before it takes effect, which is under the coordinator's lock. That lock is not
held while a change is saved: a disk or a register may be slow. For several threads; who has the
coordinator's lock may read, and may not change anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from rocketray.base.ack_mode import AckMode
from rocketray.runtime.files.file_documents import Documents

from .catalog import TopicCatalog, TopicConfig, catalog_json, parse_catalog
from .placement import Placement
from .service_queues import is_on_each_disk
from .topic_files import check_no_files, remove_files
from .topic_options import TopicOptions

_NAME = "topics"


class TopicRegistry:
    """All topics of a cluster."""

    def __init__(
        self,
        data: Path,
        documents: Documents,
        placement: Placement,
        lock: AbstractContextManager[object],
    ) -> None:
        """Load the topics from *documents*; new queues are placed by *placement*.

        *lock* is the coordinator's.
        """
        self.catalog = documents.load(_NAME, parse_catalog) or TopicCatalog()
        self._data = data
        self._documents = documents
        self._placement = placement
        self._lock = lock
        self._changing = threading.Lock()  # held during a save; taken before the coordinator's

    def create(self, name: str, queues: int, **options: Unpack[TopicOptions]) -> TopicConfig:
        """Save a new topic, or more queues of an existing one; its shards are not started here."""
        with self._changing:
            existing = self.catalog.topics.get(name)
            if existing is None or existing.queues != queues or is_on_each_disk(name):
                changed = self.catalog.with_topic(name, queues, self._placement, **options)
                if existing is None:
                    check_no_files(self._data, name)
                if changed != self.catalog:
                    self._save(changed)
            return self.catalog.get(name)

    def create_many(
        self, names: Iterable[str], queues: int, **options: Unpack[TopicOptions]
    ) -> list[TopicConfig]:
        """Save those of the topics that do not exist; return all of them. One save for all."""
        with self._changing:
            changed = self.catalog
            for name in names:
                if name not in changed.topics:
                    changed = changed.with_topic(name, queues, self._placement, **options)
                    check_no_files(self._data, name)
            if changed is not self.catalog:
                self._save(changed)
            return [changed.get(name) for name in names]

    def extend(self) -> list[str]:
        """Save the queues of services on disks that joined; return the topics that got some."""
        with self._changing:
            changed = self.catalog
            for name in filter(is_on_each_disk, self.catalog.topics):
                changed = changed.with_topic(name, changed.get(name).queues, self._placement)
            before = self.catalog.topics
            grown = [name for name, topic in changed.topics.items() if before[name] != topic]
            if grown:
                self._save(changed)
            return grown

    def change(self, name: str, change: Callable[[TopicCatalog], TopicCatalog]) -> TopicConfig:
        """Save the catalog that *change* returns; return the topic of that name in it."""
        with self._changing:
            self._save(change(self.catalog))
            return self.catalog.get(name)

    def set_node_ack(self, ack: AckMode) -> None:
        """Save the ack mode of topics that have none of their own."""
        with self._changing:
            if self.catalog.ack != ack:
                self._save(self.catalog.with_node_ack(ack))

    def note_made(self, made: Mapping[str, Iterable[int]]) -> None:
        """Save which queues of topics, by name, have answered: their directories exist for good."""
        with self._changing:
            changed = self.catalog.with_made(made)
            if changed is not self.catalog:
                self._save(changed)

    def use_no_number_below(self, number: int) -> None:
        """Save that shards get no number below *number*: a restored disk has files of them."""
        with self._changing:
            if self.catalog.next_shard_number < number:
                self._save(replace(self.catalog, next_shard_number=number))

    def delete(self, name: str) -> TopicConfig:
        """Save the catalog without a topic, which still has files; return its configuration."""
        with self._changing:
            topic = self.catalog.get(name)
            self._save(self.catalog.without_topic(name))
            return topic

    def deleted(self) -> list[TopicConfig]:
        """Return the deleted topics that may still have files."""
        return list(self.catalog.deleted.values())

    def remove_files(self, topic: TopicConfig) -> None:
        """Remove the files of a deleted topic, whose shards no process has open.

        Raises:
            StoreError, OSError: a file cannot be removed; the topic stays in :meth:`deleted`.
        """
        remove_files(self._data, topic)
        with self._changing:
            self._save(self.catalog.without_deleted(topic.name))

    def _save(self, catalog: TopicCatalog) -> None:
        self._documents.save(_NAME, catalog_json(catalog))
        with self._lock:
            self.catalog = catalog
