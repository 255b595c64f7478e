"""The transport of stock Faust apps: ``faust.App("id", broker="rocketray://")``.

An app that does not use rocketray's classes keeps Faust's own consumer, streams and agents, one
event at a time. Ours are the layers below: topics, offsets, membership and the log. An app that is
to use our data path as well is a :class:`rocketray.App` (see batch_transport.py).

The node is found by its data directory, ``rocketray:///absolute/path``, or by the name of its
cluster, ``rocketray://?cluster=NAME``; else as for every program (rocketray/base/cluster.py).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from faust.transport.base import Transport as FaustTransport

from rocketray.base.cluster import CLUSTER_VARIABLE, Cluster, chosen_node
from rocketray.base.data_directory import DATA_VARIABLE
from rocketray.errors import ConfigError, TopicNotFoundError
from rocketray.topology.connection import AppNode, OneConnection
from rocketray.topology.faust.batch_transport import PromptConductor
from rocketray.topology.faust.table_manager import LAST_OF_EACH_KEY
from rocketray.topology.values.topic import retention_policy
from rocketray.topology.values.wire import topic_name

from .stock_consumer import StockConsumer
from .stock_producer import StockProducer

# Of the topic by whose one queue Faust elects a leader.
_LEADER_SUFFIX = "-__assignor-__leader"


class StockConductor(PromptConductor):
    """Faust's conductor, without its unread queues of replies.

    A stream of replies adds a topic twice, as itself and as its iterator. The first gets each reply
    too, and after some thousands its full queue would hold up the second.
    """

    def _build_handler(self, tp: Any, channels: Any) -> Any:
        iterated = {channel for channel in channels if channel.is_iterator}
        return super()._build_handler(tp, iterated or channels)


class Transport(FaustTransport):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's factory of the parts of the data path, and the link to the node."""

    Consumer = StockConsumer
    Producer = StockProducer
    Conductor = StockConductor
    default_port = 0  # of Faust's interface: a node has no port
    driver_version = "rocketray"

    def __init__(self, url: list[Any], app: Any, loop: Any = None) -> None:
        super().__init__(url, app, loop)
        _check_settings(app.conf)
        self.connection = OneConnection()
        self._queue_counts: dict[str, int] = {}
        self.changelogs: set[str] = set()
        """The topics that keep the last message of each key, as far as this app created them."""

    async def connect(self) -> AppNode:
        """Return the connection to the node, opened on first use."""
        return await self.connection.to(lambda: node_of_broker(self.url[0]))

    async def create_topic(
        self, topic: str, queues: int, retention: Any = None, *, is_changelog: bool = False
    ) -> None:
        """Create Faust's *topic* on the node unless it exists; *retention* in seconds.

        A changelog keeps the last message of each key, whatever its retention.
        """
        self.changelogs |= {topic} if is_changelog else set()
        if topic in self._queue_counts:
            return
        connection = await self.connect()
        policy = LAST_OF_EACH_KEY if is_changelog else retention_policy(retention)
        is_reply = topic.startswith(self.app.conf.reply_to_prefix)
        internal = is_changelog or is_reply or topic.endswith(_LEADER_SUFFIX)  # little traffic
        ensure, name = connection.topics.ensure, topic_name(topic)
        made = await asyncio.to_thread(ensure, name, queues, retention=policy, internal=internal)
        self._queue_counts[topic] = made.queues

    async def queue_count(self, topic: str) -> int:
        """Return how many queues Faust's *topic* has; create it where apps may create topics.

        Raises:
            TopicNotFoundError: there is none, and the app's ``topic_allow_declare`` is off.
        """
        if topic not in self._queue_counts:
            connection = await self.connect()
            try:
                config = await asyncio.to_thread(connection.topics.get, topic_name(topic))
            except TopicNotFoundError:
                if not self.app.conf.topic_allow_declare:
                    raise
                await self.create_topic(topic, _declared_queues(self.app, topic))
            else:
                self._queue_counts[topic] = config.queues
        return self._queue_counts[topic]

    def forget_topic(self, topic: str) -> None:
        """Forget Faust's *topic*, which was deleted."""
        self._queue_counts.pop(topic, None)

    def known_queue_count(self, topic: str) -> int | None:
        """Return how many queues Faust's *topic* has, as far as this app asked or created it."""
        return self._queue_counts.get(topic)


def node_of_broker(url: Any) -> Path | Cluster:
    """Return the node that the broker's URL names, else the environment.

    Raises:
        ConfigError: the URL names something else.
    """
    unknown = url.query.keys() - {"cluster", "ray_address"}
    if url.host or unknown:
        what = "a host" if url.host else f"{', '.join(sorted(unknown))!r}"
        raise ConfigError(
            f"broker {str(url)!r} names {what}; name a node's data directory, "
            "rocketray:///absolute/path, or a cluster, rocketray://?cluster=NAME, or rocketray:// "
            f"with {DATA_VARIABLE} or {CLUSTER_VARIABLE}"
        )
    named = url.path.strip("/")
    place = url.query.get("cluster"), url.query.get("ray_address")
    return chosen_node(f"/{named}" if named else None, *place)


def _check_settings(conf: Any) -> None:
    if "exactly_once" in str(getattr(conf.processing_guarantee, "value", "")):
        raise ConfigError(
            "processing_guarantee='exactly_once' needs Kafka's transactions; leave it out, and "
            "make handlers idempotent, or write through a sink of rocketray.App"
        )
    if conf.producer_threaded:
        raise ConfigError("producer_threaded: a thread always does the sends; leave it out")


def _declared_queues(app: Any, topic: str) -> int:
    """Return how many queues *app* declares for a topic that it reads, else the setting's."""
    channels = [*app.topics, *(agent.channel for agent in app.agents.values())]
    said = (
        channel.partitions
        for channel in channels
        if topic in getattr(channel, "topics", ()) and channel.partitions
    )
    return int(next(said, app.conf.topic_partitions))
