"""Topics of an app on the node: created at first use, each with its number of queues.

An app declares a topic once. A repartition topic gets as many queues as its source topic has on the
node, because the parts of tables are assigned by queue number.
"""

from __future__ import annotations

import asyncio
from typing import Any

from .topic import Topic, retention_policy

__all__ = ["Declarations"]


class Declarations:
    """The topics that one app has declared; used on its loop only."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._models: dict[str, Topic] = {}  # topics that have as many queues as another
        self._queue_counts: dict[str, int | None] = {}
        self._declaring = asyncio.Lock()

    def knows(self, topic: str) -> bool:
        """Return whether *topic* was declared."""
        return topic in self._queue_counts

    def queue_count(self, topic: str) -> int | None:
        """Return how many queues *topic* has; None before the first read from it or send to it."""
        return self._queue_counts.get(topic)

    def have_as_many_queues(self, topic: Topic, model: Topic) -> None:
        """Give *topic* as many queues as *model* when it is created."""
        self._models[topic.get_topic_name()] = model

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
        connection = await self._app.connect()
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
                found = await asyncio.to_thread(
                    connection.topics.ensure, topic, count, policy, internal=internal
                )
            else:
                found = (await asyncio.to_thread(connection.topics.all)).get(topic)
            self._queue_counts[topic] = None if found is None else found.queues
