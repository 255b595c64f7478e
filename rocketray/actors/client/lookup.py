"""Looking up messages in all shards of a cluster, for any kind of connection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from rocketray.actors.topics.catalog import TopicCatalog
from rocketray.actors.topics.topics import Topics
from rocketray.message import StoredMessage
from rocketray.store.formats.message_id import decode_offset_id

__all__ = ["Lookups", "find_by_offset_id", "merge"]


class Lookups(Protocol):
    """The calls of a connection that this module needs."""

    @property
    def topics(self) -> Topics:
        """The node's topics."""

    def view_at(self, topic: str, queue_id: int, physical_offset: int) -> StoredMessage | None:
        """Return the message at a physical offset of a shard's log, or None."""

    def query(self, topic: str, key: str, max_count: int = 64) -> list[StoredMessage]:
        """Return the topic's messages with a business key or unique key, oldest first."""


def find_by_offset_id(node: Lookups, offset_message_id: str) -> StoredMessage | None:
    """Return the message with that offset id, its own or the one from before its import, or None.

    An id that names none of the cluster's shards is looked up in all of them.
    """
    wanted = decode_offset_id(offset_message_id)
    topics = node.topics.all()
    shard = TopicCatalog(topics).shard_of_host(wanted.store_host)
    if shard is not None:
        found = node.view_at(*shard, wanted.physical_offset)
        if found is not None:
            return found
    old_id = offset_message_id.upper()
    for topic in topics:
        for message in node.query(topic, old_id):
            if message.imported_offset_id == old_id:
                return message
    return None


def merge(answers: Iterable[Sequence[StoredMessage]], max_count: int) -> list[StoredMessage]:
    """Return the first *max_count* messages of the results of several shards, oldest first."""
    found = [message for answer in answers for message in answer]
    found.sort(key=lambda message: (message.store_timestamp_ms, message.queue_id))
    return found[:max_count]
