"""Faust's fetcher, as the owner of all feeds of an app.

Faust starts its fetcher when an app may receive messages and stops it when it may not: before a
stop, and while tables recover. Starting opens a feed for every (channel, topic) that a stream
reads; stopping drains them, so that when it returns no handler begins another message and all
that was finished is committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from mode import Service

from rocketray.topology.connection import GroupConsumer
from rocketray.topology.feed import Feed
from rocketray.topology.group import Membership
from rocketray.topology.topic import Topic

__all__ = ["DRAIN_GRACE_S", "FeedFetcher"]

logger = logging.getLogger(__name__)

DRAIN_GRACE_S = 5.0


class FeedFetcher(Service):  # type: ignore[misc]  # mode's types are not followed
    """Opens and drains the feeds of one app."""

    def __init__(self, app: Any, **options: Any) -> None:
        self.app = app
        self._feeds: dict[tuple[Topic, str], Feed] = {}
        self._closed: list[Feed] = []
        self._opening = asyncio.Lock()
        self.is_open = asyncio.Event()
        """Set when all that streams read at the start is read."""
        super().__init__(**options)

    @property
    def feeds(self) -> Iterable[Feed]:
        """The open feeds."""
        return self._feeds.values()

    def feeds_of(self, membership: Membership | None) -> list[Feed]:
        """The feeds of one agent since the app was made, also those that are closed."""
        return [
            feed for feed in (*self._closed, *self._feeds.values()) if feed.membership is membership
        ]

    async def on_start(self) -> None:
        """Open a feed for everything that is iterated over now."""
        await self.open_missing()
        self.is_open.set()

    async def on_stop(self) -> None:
        """Drain all feeds, commit, and leave the groups."""
        self.is_open.clear()
        feeds = list(self._feeds.values())
        grace_s = DRAIN_GRACE_S if self.app.conf.stream_wait_empty else 0.0
        await asyncio.gather(*(feed.drain(grace_s) for feed in feeds))
        if feeds:
            await self.app.consumer.force_commit()
        self._closed += feeds
        self._feeds.clear()
        await asyncio.gather(*(feed.close() for feed in feeds))

    async def open_missing(self) -> None:
        """Open feeds for channels that came since the last call."""
        async with self._opening:
            wanted = [
                (channel, topic)
                for channel in list(self.app.topics)
                if isinstance(channel, Topic) and channel.is_iterator
                for topic in channel.topics
            ]
            missing = [key for key in wanted if key not in self._feeds]
            members = await asyncio.gather(*(self._join(*key) for key in missing))
            for (channel, topic), member in zip(missing, members, strict=True):
                await self._open(channel, topic, member)

    async def _join(self, channel: Topic, topic: str) -> GroupConsumer:
        """Become a member, in a thread, because joining asks the node."""
        connection = await self.app.connect()
        await self.app.declare_topic(topic, channel.partitions, channel.retention)
        membership = self._membership(channel, topic)
        return await asyncio.to_thread(
            connection.consumer,
            membership.group,
            topic,
            membership.subscription,
            start=self.app.conf.consumer_auto_offset_reset,
            strategy=membership.strategy,
            together=self.app.together,
        )

    async def _open(self, channel: Topic, topic: str, member: GroupConsumer) -> None:
        membership = self._membership(channel, topic)
        feed = Feed(
            topic,
            membership,
            member,
            channel.queue,
            flush_sends=self.app.flush_sends,
            tables=self.app.tables,
            on_failure=self._feed_failed,
        )
        self._feeds[channel, topic] = feed
        await feed.start()
        logger.info("group %s reads topic %s", membership.group, topic)

    def _membership(self, channel: Topic, topic: str) -> Membership:
        return channel.membership or self.app.membership_without_agent(topic)

    def _feed_failed(self, error: Exception) -> None:
        """A feed is dead, and its group would silently starve: the app must not look healthy."""
        self.add_future(self.app.crash(error))
