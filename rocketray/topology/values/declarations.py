"""The topics that an app declares: each is created on the node when it is first used."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from rocketray.base.ack_mode import AckMode, check_ack
from rocketray.base.quantity import counted
from rocketray.errors import ConfigError

from .topic import Topic, retention_policy

logger = logging.getLogger(__name__)


class Declarations:
    """The topics that one app has declared: each is created at first use, with its queues.

    A repartition topic gets as many queues as its source topic has on the node, because the parts
    of tables are assigned by queue number. Used on the app's loop only.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._models: dict[str, Topic] = {}  # topics that have as many queues as another
        self._acks: dict[str, AckMode] = {}
        self._named: dict[str, Topic] = {}
        self._queue_counts: dict[str, int | None] = {}
        # Held during one declaration, so that concurrent first sends create the topic once. It
        # cannot be taken twice: a model is declared before it is taken.
        self._declaring = asyncio.Lock()

    def knows(self, topic: str) -> bool:
        return topic in self._queue_counts

    def forget_topic(self, topic: str) -> None:
        """Have *topic* declared again at its next use: it was deleted."""
        self._queue_counts.pop(topic, None)

    def queue_count(self, topic: str) -> int | None:
        """Return how many queues *topic* has; None before the first read from it or send to it."""
        return self._queue_counts.get(topic)

    def will_create(self, topic: Topic) -> None:
        """Have the names of *topic* created at the start of the app, though it may only send."""
        self._named |= {name: topic for name in topic.topics if name not in self._named}

    async def create_named(self) -> None:
        """Create the topics that the program names, unless they exist."""
        for name, topic in list(self._named.items()):
            await self.declare(name, topic.partitions, topic.retention)

    def have_as_many_queues(self, topic: Topic, model: Topic) -> None:
        """Give *topic* as many queues as *model* when it is created."""
        self._models[topic.get_topic_name()] = model

    def create_with_ack(self, topic: str, ack: AckMode | None) -> None:
        """Create *topic* with *ack*; None leaves it open.

        Raises:
            ConfigError: it is not an ack mode, or the app declares another one for the topic.
        """
        if ack is None:
            return
        check_ack(ack)
        known = self._acks.setdefault(topic, ack)
        if known != ack:
            raise ConfigError(
                f"the app declares topic {topic!r} with ack={known!r} and with ack={ack!r}; "
                "give one of them"
            )

    async def declare(
        self,
        topic: str,
        queues: int | None,
        retention: Any = None,
        *,
        internal: bool = False,
        create: bool = True,
    ) -> None:
        """Create *topic* on the node, once per app, unless it exists or *create* is False.

        *retention* is in seconds, a timedelta or a policy; None keeps all messages. An *internal*
        topic is one of the app itself, which patterns leave out.
        """
        connection, ack = await self._app.connect(), self._acks.get(topic)
        # Before the lock, which cannot be taken twice: to declare the model takes it, too.
        model = self._models.get(topic)
        if model is not None:
            name = model.get_topic_name()
            await self.declare(name, model.partitions, model.retention)
            queues = self.queue_count(name)
        async with self._declaring:
            if topic in self._queue_counts:
                return
            if create and self._app.conf.topic_allow_declare:
                count = queues or self._app.conf.topic_partitions
                policy = retention_policy(retention)
                config = await asyncio.to_thread(
                    partial(connection.topics.ensure, topic, count, ack=ack),
                    retention=policy,
                    internal=internal,
                )
            else:
                config = (await asyncio.to_thread(connection.topics.all)).get(topic)
            self._queue_counts[topic] = None if config is None else config.queues
        if config is not None and queues is not None and config.queues < queues:
            logger.warning(
                "topic %s has %s, and the app declares %d; give it more with: "
                "rocketray topics alter %s --queues %d",
                topic, counted(config.queues, "queue"), queues, topic, queues,
            )  # fmt: skip
        if config is not None and ack is not None and config.ack != ack:
            logger.warning(
                "topic %s acknowledges %s, and the app declares ack=%r; change it with: "
                "rocketray topics alter %s --ack %s",
                topic, f"from {config.ack}" if config.ack else "as its node says", ack, topic, ack,
            )  # fmt: skip
