"""Questions to agents and their answers: Faust's, without its causes of hanging.

Each instance of an app has a reply topic, in a group of its own that commits like any other. It is
created before the first question is sent, read from its beginning, and deleted with the instance.
An answer without a waiting caller, or a duplicate, is skipped.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from faust.agents.replies import ReplyConsumer
from faust.models import maybe_model

from rocketray.errors import StreamError
from rocketray.filters.subscription import EVERYTHING
from rocketray.topology.values.group import GroupMembership
from rocketray.topology.values.wire import group_name

logger = logging.getLogger(__name__)


class Replies(ReplyConsumer):  # type: ignore[misc]  # Faust's types are not followed
    """The answers that one app waits for."""

    async def add(self, correlation_id: str, promise: Any) -> None:
        """Fulfil *promise* when the answer to *correlation_id* arrives."""
        self._waiting[correlation_id].add(promise)
        await self._start_fetcher(promise.reply_to)

    async def declare(self, topic: str) -> None:
        """Create the reply topic *topic*, so that it exists before the first answer."""
        await self.app.declarations.declare(topic, 1, self.app.conf.reply_expires, internal=True)

    async def delete_topic(self) -> None:
        """Delete this instance's reply topic and its group, after the app has stopped."""
        name = self.app.conf.reply_to
        if name not in self._fetchers or not name.startswith(self.app.conf.reply_to_prefix):
            return  # it was not created, or another instance may use a topic of that name
        connection = await self.app.connect()
        try:
            await asyncio.to_thread(connection.topics.delete, name)
            await asyncio.to_thread(connection.groups.delete, self._group(name))
        except StreamError as error:
            # The app has stopped by now; a topic that nothing reads must not make that fail.
            logger.warning("reply topic %s is not removed: %s", name, error)

    async def _start_fetcher(self, topic_name: str) -> None:
        if topic_name in self._fetchers:
            return
        self._fetchers[topic_name] = None
        await self.declare(topic_name)
        topic = self._reply_topic(topic_name)
        topic.membership = GroupMembership(
            self._group(topic_name), EVERYTHING, start="earliest", is_private=True
        )
        self._fetchers[topic_name] = self.add_future(self._drain_replies(topic))

    async def _drain_replies(self, channel: Any) -> None:
        async for reply in channel.stream():
            for promise in self._waiting.pop(reply.correlation_id, ()):
                if not promise.done():
                    promise.fulfill(reply.correlation_id, maybe_model(reply.value))

    def _group(self, topic: str) -> str:
        return group_name(f"{self.app.conf.id}-{topic}")
