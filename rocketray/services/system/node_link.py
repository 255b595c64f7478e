"""The links from system services to the rest of their node, created on first use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rocketray.base.names import DEAD_LETTER_PREFIX
from rocketray.base.system_topics import is_of_service
from rocketray.broker.retries.deliveries import Place
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import ConfigError, InvalidMessageError, ShardUnavailableError, StreamError
from rocketray.message import UNIQUE_KEY, ForwardedMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.producers.producer import NodeProducer

# How long a delivery's thread waits for a target that does not answer. Then the target has a pause,
# of a minute at last, and the thread is free for others.
_TIMEOUT_S = 5.0
_IDLE_LINKS_MAX = 64  # each has a producer, with a thread and a ring of 4 MiB: 256 MiB in all


class NodeLinks:
    """The links to targets; for any thread, as long as a target has one at a time.

    Each has a producer of its own, because a producer that waits for a shard blocks all its users.
    """

    def __init__(self, find_node: Callable[[], NodeClient]) -> None:
        """Take *find_node*, which is called at the first send or query, not before."""
        self._find_node = find_node
        self._node: NodeClient | None = None
        self._producers: OrderedDict[Place, NodeProducer] = OrderedDict()
        self._own: dict[Place, int] = {}  # the queues of services' topics on the own disk
        self._lock = threading.Lock()

    def node(self) -> NodeClient:
        with self._lock:
            if self._node is None:
                self._node = self._find_node()
            return self._node

    def forward(self, topic: str, queue_id: int, messages: Sequence[ForwardedMessage]) -> None:
        """Store messages on disk, all or none; in another queue if that one does not exist.

        A queue of a service's topic is that of the own disk, where it has one. A missing
        dead-letter topic is created.

        Raises:
            StreamError: they are not stored, or it is not known.
        """
        if topic.startswith(DEAD_LETTER_PREFIX):  # with one queue, as in RocketMQ
            self.node().topics.ensure(topic, 1)
        queue_id = self._own_queue(topic, queue_id)
        with self._producer((topic, queue_id)) as producer:
            queue_id = self._queue(producer, topic, queue_id)
            producer.forward(topic, queue_id, messages)

    def is_stored(self, message: ForwardedMessage, queue_id: int) -> bool:
        """Return whether :meth:`forward` stored exactly this message there; raises as it.

        It may be in memory only, until :meth:`sync`.
        """
        unique_key = message.properties.get(UNIQUE_KEY)
        if unique_key is None:
            return False
        _, queue_id = self._place(message.topic, queue_id)
        found = self.node().messages.query(message.topic, unique_key, queues=[queue_id])
        return any(map(message.is_stored_as, found))

    def sync(self, topic: str, queue_id: int) -> None:
        """Bring to disk what is stored where :meth:`forward` stores messages; raises as it."""
        self.node().shard_calls(*self._place(topic, queue_id)).sync()

    def close(self) -> None:
        with self._lock:
            producers, self._producers = self._producers, OrderedDict()
        for producer in producers.values():
            _close(producer)

    def _place(self, topic: str, queue_id: int) -> tuple[TopicConfig, int]:
        config = self.node().topics.get(topic)
        return config, self._own_queue(topic, queue_id) % config.queues

    @contextmanager
    def _producer(self, target: Place) -> Iterator[NodeProducer]:
        with self._lock:
            producer = self._producers.pop(target, None)
        if producer is None:
            producer = NodeProducer(self.node(), ack="disk", timeout_s=_TIMEOUT_S)
        try:
            yield producer
        except InvalidMessageError:
            self._keep(target, producer)
            raise
        except ShardUnavailableError:
            producer.refresh_topics()  # it may wait for a shard of a deleted topic
            self._keep(target, producer)  # or for one that has the batch, and stores it once
            raise
        except BaseException:
            _close(producer)  # the topic, or its shard, may be a new one by now
            raise
        else:
            self._keep(target, producer)

    def _keep(self, target: Place, producer: NodeProducer) -> None:
        with self._lock:
            self._producers[target] = producer
            most = len(self._producers) > _IDLE_LINKS_MAX
            oldest = self._producers.popitem(last=False)[1] if most else None
        if oldest is not None:
            _close(oldest)

    def _own_queue(self, topic: str, queue_id: int) -> int:
        """Return a queue; of a service's topic that which has this number on the own disk."""
        if not is_of_service(topic):
            return queue_id
        place = topic, queue_id
        if place not in self._own:
            node = self.node()
            own = node.topics.get(topic).queue_on(node.disk, queue_id)
            self._own[place] = queue_id if own is None else own
        return self._own[place]

    def _queue(self, producer: NodeProducer, topic: str, queue_id: int) -> int:
        try:
            return producer.links.choose_queue(topic, queue_id)
        except ConfigError:  # the topic was recreated, with fewer queues
            return queue_id % self.node().topics.get(topic).queues


def _close(producer: NodeProducer) -> None:
    with suppress(StreamError):
        producer.close()
