"""How a service of the shard host reaches the rest of its node: made when it is needed first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from rocketray.errors import ConfigError, InvalidMessageError, StreamError
from rocketray.message import ForwardedMessage, StoredMessage

from .lane import Shards
from .producer import Producer

__all__ = ["HostNode", "NodeLink"]

_TIMEOUT_S = 5.0  # all services wait for a target that is away


class HostNode(Shards, Protocol):
    """What services need of the node beyond their own host."""

    def query(self, topic: str, key: str) -> list[StoredMessage]:
        """The messages of a topic with that key."""


class NodeLink:
    """For one thread at a time."""

    def __init__(self, find_node: Callable[[], HostNode]) -> None:
        self._find_node = find_node
        self._node: HostNode | None = None
        self._producer: Producer | None = None

    def forward(self, topic: str, queue_id: int, messages: Sequence[ForwardedMessage]) -> None:
        """Store messages on disk, all or none; in another queue where that one is not there.

        Raises:
            StreamError: they are not stored, or it is not known.
        """
        if self._producer is None:
            self._producer = Producer(self.node(), ack="disk", timeout_s=_TIMEOUT_S)
        try:
            queue_id = self._queue(self._producer, topic, queue_id)
            self._producer.forward(topic, queue_id, messages)
        except InvalidMessageError:
            raise
        except StreamError:
            self.close()  # the topic, or its shard, may be another one by now
            raise

    def node(self) -> HostNode:
        """The node's other parts."""
        if self._node is None:
            self._node = self._find_node()
        return self._node

    def close(self) -> None:
        """Give the rings back."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(StreamError):
                producer.close()

    def _queue(self, producer: Producer, topic: str, queue_id: int) -> int:
        try:
            return producer.choose_queue(topic, queue_id)
        except ConfigError:  # the topic was made anew, with fewer queues
            return queue_id % self.node().topic(topic).queues
