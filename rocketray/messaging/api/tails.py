"""Reading one queue by position, on any machine: from its files, or by calls to its disk."""

from __future__ import annotations

from typing import Protocol

from rocketray.broker.fetching.range_api import RangeApi
from rocketray.broker.fetching.read_plan import Bounds
from rocketray.broker.topics.queue_tail import QueueTail, Tail
from rocketray.broker.topics.topics import Topics
from rocketray.errors import NodeElsewhereError, OffsetOutOfRangeError
from rocketray.message import StoredMessage

from .node_client import NodeClient


class TailNode(Protocol):
    """A node with queues to read."""

    @property
    def topics(self) -> Topics:
        """The calls about topics."""

    def at(self, disk: str) -> NodeClient:
        """Return a client for a disk."""


def tail_of(node: TailNode, topic: str, queue_id: int) -> Tail:
    """Return a reader of a queue; for it a topic that does not exist is an empty one.

    Raises:
        ShardUnavailableError: the coordinator does not answer.
    """
    known = node.topics.all().get(topic)
    place = node.at("" if known is None else known.disk_of(queue_id))
    try:
        data = place.files("reading a queue")
    except NodeElsewhereError:
        return RemoteTail(place.ranges, node.topics, topic, queue_id)
    return QueueTail(data, topic, queue_id)


class RemoteTail:
    """The :class:`Tail` of a queue on another machine; each method makes a call."""

    def __init__(self, ranges: RangeApi, topics: Topics, topic: str, queue_id: int) -> None:
        self._ranges = ranges
        self._topics = topics
        self._key = topic, queue_id
        self._is_known = False

    def minimum(self) -> int:
        return self._bounds().minimum

    def end(self) -> int:
        return self._bounds().visible

    def read(self, start: int, max_count: int) -> list[StoredMessage]:
        found = self._ranges.records({self._key: start}, max_count)[self._key]
        if start < found.held.minimum:
            topic, queue_id = self._key
            held = found.held.minimum, found.held.visible
            raise OffsetOutOfRangeError(f"{topic}/{queue_id}", start, *held)
        return found.messages()

    def close(self) -> None:
        """Nothing is held."""

    def _bounds(self) -> Bounds:
        """Return the bounds; a topic that does not exist yet has no messages."""
        self._is_known = self._is_known or self._key[0] in self._topics.all()
        return (
            self._ranges.records({self._key: 0}, 0)[self._key].held
            if self._is_known
            else Bounds(0, 0)
        )
