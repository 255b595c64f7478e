"""A data directory with real shards, written in this process without a node."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from rocketray.base.config import StoreConfig
from rocketray.broker.named_filters.filter_book import FilterBook, book_json, parse_book
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.filters.subscription import Subscription
from rocketray.message import Message, StoredMessage
from rocketray.runtime.files.file_documents import FileDocuments
from rocketray.runtime.files.paths import control_path, shard_directory
from rocketray.runtime.ipc.control_page import ControlPage
from rocketray.store.message_store import MessageStore
from rocketray.store.retention import DiskUse, RetentionPolicy

from .stores import FakeClock

TAGS = ("pay", "order", None, "Aa", "BB")  # Aa and BB have one tags code
REGIONS = ("eu", "us", "asia")
_SEGMENT_BYTES = 64 * 1024  # some 300 messages, so that queues roll
_QUEUE_ENTRIES = 100
_APPEND_COUNT = 150  # a batch must fit one segment


class Shards:
    """Topics of a data directory; each queue's store is opened at its first message."""

    def __init__(self, data: Path, **queues: int) -> None:
        self.data = data
        self._clock = FakeClock()
        self._stores: dict[tuple[str, int], MessageStore] = {}
        self._pages: dict[tuple[str, int], ControlPage] = {}
        for topic, count in queues.items():
            self.create(topic, count)

    def create(self, topic: str, queues: int) -> None:
        """A new topic, or more queues for an old one."""
        TopicCatalog.load(self.data).with_topic(topic, queues).save(self.data)

    def make_again(self, topic: str, queues: int) -> None:
        """Delete a topic, and make one of the same name."""
        self.delete(topic)
        self.create(topic, queues)

    def delete(self, topic: str) -> None:
        """Delete a topic and its files."""
        for key in [key for key in self._stores if key[0] == topic]:
            self._stores.pop(key).close()
            self._pages.pop(key)
        shutil.rmtree(shard_directory(self.data, topic, 0).parent)
        TopicCatalog.load(self.data).without_topic(topic).without_deleted(topic).save(self.data)

    def save_filter(self, topic: str, name: str, subscription: Subscription) -> None:
        """Save the next version of a named filter."""
        documents = FileDocuments(self.data)
        book = documents.load("namedFilters", parse_book) or FilterBook()
        filters = book.of(topic, TopicCatalog.load(self.data).get(topic).topic_id)
        saved = filters.with_saved(name, subscription, "", created_ms=0, created_by="")
        documents.save("namedFilters", book_json(book.with_topic(saved)))

    def append(self, messages: Sequence[Message], queue_id: int) -> None:
        """Store messages of one topic, a millisecond after all others, and let readers see them."""
        self._clock.now_ms += 1
        topic = messages[0].topic
        store, page = self._open(topic, queue_id)
        store.put(messages, queue_id)
        page.publish_visible(store.reads.max_queue_offset(topic, queue_id))

    def fill(self, topic: str, queue_id: int, count: int) -> list[Message]:
        """Store *count* messages of :func:`make_message`, numbered on from what is there."""
        store, _ = self._open(topic, queue_id)
        first = store.reads.max_queue_offset(topic, queue_id)
        messages = [make_message(topic, queue_id, first + number) for number in range(count)]
        for start in range(0, count, _APPEND_COUNT):
            self.append(messages[start : start + _APPEND_COUNT], queue_id)
        return messages

    def delete_before(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Say that messages are gone, as retention does."""
        self._open(topic, queue_id)[1].publish_minimum(queue_offset)

    def expire(self, topic: str, queue_id: int) -> int:
        """Delete all but the newest file, as retention does; the first offset that is left."""
        store, page = self._open(topic, queue_id)
        store.expire(
            RetentionPolicy(max_bytes=1),
            DiskUse(0, 1 << 40),
            announce=lambda: page.publish_minimum(store.reads.min_queue_offset(topic, queue_id)),
        )
        return page.minimum()

    def stored(self, topic: str) -> list[StoredMessage]:
        """All messages of a topic, as its stores have them."""
        return [
            message
            for (name, _), store in sorted(self._stores.items())
            if name == topic
            for message in store.reads.scan()
        ]

    def close(self) -> None:
        for store in self._stores.values():
            store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, topic: str, queue_id: int) -> tuple[MessageStore, ControlPage]:
        key = (topic, queue_id)
        if key not in self._stores:
            host = TopicCatalog.load(self.data).get(topic).store_hosts[queue_id]
            config = StoreConfig(_SEGMENT_BYTES, _QUEUE_ENTRIES, store_host=host)
            directory = shard_directory(self.data, *key)
            self._stores[key] = MessageStore(directory, config, clock_ms=self._clock)
            self._pages[key] = ControlPage(control_path(self.data, *key), create=True)
        return self._stores[key], self._pages[key]


def make_message(topic: str, queue_id: int, number: int) -> Message:
    """A message whose every part follows from its number; some have no tag, key or property."""
    properties = {"a": str(number)} if number % 7 else {}
    return Message(
        topic,
        f"{topic} {queue_id} {number} ".encode() * (number % 4),
        tags=TAGS[number % len(TAGS)],
        keys=(f"k{number}", "every") if number % 3 else (),
        properties=properties | {"region": REGIONS[number % len(REGIONS)]},
        unique_key=f"U{queue_id}-{number}",
        born_timestamp_ms=1_600_000_000_000 + number * 1001,
    )
