"""Faust's fetcher, as the owner of all feeds of an app.

Faust starts its fetcher when an app may receive messages and stops it when it may not: before a
stop, and while tables recover. Starting opens a feed for every (channel, topic) that a stream
reads. Stopping drains them: when it returns, no handler starts another message, and all finished
messages are committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from mode import Service

from rocketray.base.names import RETRY_PREFIX
from rocketray.broker.named_filters.joining import join_by_filter
from rocketray.broker.retries.retry_records import retry_topic
from rocketray.errors import ActorError, TopicNotFoundError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import EVERYTHING, Subscription
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.runtime.outage_log import OutageLog
from rocketray.topology.delivery.feed import Feed, FeedServices
from rocketray.topology.delivery.noted_failure import NotedFailure
from rocketray.topology.delivery.returns import Returns, make_retry_topic
from rocketray.topology.faust.routes import member_name
from rocketray.topology.values.group import GroupMembership
from rocketray.topology.values.topic import Topic
from rocketray.topology.values.wire import group_name

logger = logging.getLogger(__name__)

# A stop waits for it once for handlers and once for what they sent back.
DRAIN_GRACE_S = 5.0
# Half of the 10 s after which a first retry is due: by then its topic has a feed.
RETRY_LOOK_S = 5.0


class FeedFetcher(Service):  # type: ignore[misc]  # mode's types are not followed
    """Opens and drains the feeds of one app."""

    def __init__(self, app: Any, **options: Any) -> None:
        self.app = app
        self._feeds: dict[tuple[Topic, str], Feed] = {}
        self._closed: list[Feed] = []
        self._deleted: dict[tuple[Topic, str], Feed] = {}
        self._returns: Returns | None = None
        self._filters: dict[str, Subscription] = {}  # with which each group was joined
        self._known_before: set[tuple[str, str]] = set()
        """Each group with each of its topics, as an app with a pattern found them at its start."""
        # The first of the app's locks: whatever opens or ends feeds takes those of the tables
        # (table_manager.py) and of declarations (values/topic.py) inside of it, and never the other
        # way.
        self._opening = asyncio.Lock()
        self._is_stopping = False
        self.is_open = asyncio.Event()
        """Set when every topic that streams read at the start has a feed."""
        super().__init__(**options)
        self._outages = OutageLog(logger)

    @property
    def feeds(self) -> Iterable[Feed]:
        return self._feeds.values()

    def feeds_of(self, membership: GroupMembership | None) -> list[Feed]:
        """Return all feeds of one agent since the app was created, including closed ones."""
        return [
            feed for feed in (*self._closed, *self._feeds.values()) if feed.membership is membership
        ]

    async def on_start(self) -> None:
        """Open a feed for every topic that a stream reads now."""
        self._is_stopping = False
        self._filters.clear()
        if any(channel.pattern is not None for channel in self._channels()):
            connection = await self.app.connect()
            groups = await asyncio.to_thread(connection.groups.all)
            self._known_before = {(each.group, each.topic) for each in groups}
        await self.open_missing()
        self.is_open.set()
        self.add_future(self._keep_looking())

    async def on_stop(self) -> None:
        """Drain all feeds, commit, and leave the groups."""
        self._is_stopping = True
        self.is_open.clear()
        grace_s = DRAIN_GRACE_S if self.app.conf.stream_wait_empty else 0.0
        # Without the lock, which an opening feed holds while it recovers tables: handlers stop at
        # once.
        await asyncio.gather(*(feed.drain(grace_s) for feed in self._feeds.values()))
        if self._returns is not None:
            await self._returns.flush(DRAIN_GRACE_S)
        async with self._opening:  # a half-open feed was completed, and is closed
            feeds = list(self._feeds.values())
            await asyncio.gather(*(feed.drain(grace_s) for feed in feeds))
            if feeds:
                await self.app.consumer.force_commit()
            self._closed += feeds
            self._feeds.clear()
            await asyncio.gather(*(feed.close() for feed in feeds))
            if self._returns is not None:
                returns, self._returns = self._returns, None
                await returns.close()

    async def open_missing(self) -> None:
        """Open feeds for channels and retry topics that were added since the last call.

        If one cannot be opened, the others are; then the error of the first is raised.
        """
        async with self._opening:
            wanted = await self._wanted()
            missing = [key for key in wanted if key not in self._feeds]
            missing = await self._but_deleted(missing)
            failures = await self._open_all([*missing, *await self._missing_retries(wanted)])
            if failures:
                raise failures[0]

    async def _but_deleted(self, keys: list[tuple[Topic, str]]) -> list[tuple[Topic, str]]:
        """Return the keys whose topics are not deleted; one that exists again can be declared."""
        if not self._deleted:
            return keys
        connection = await self.app.connect()
        existing = await asyncio.to_thread(connection.topics.all)
        for key in self._deleted:
            if key[1] in existing:
                self.app.declarations.forget_topic(key[1])
        return [key for key in keys if key not in self._deleted or key[1] in existing]

    async def _open_all(self, keys: Sequence[tuple[Topic, str]]) -> list[BaseException]:
        """Open feeds; return the errors of those that could not be opened."""
        opened = await asyncio.gather(*(self._open(*key) for key in keys), return_exceptions=True)
        return [failure for failure in opened if failure is not None]

    def filter_of(self, membership: GroupMembership) -> Subscription | FilterName:
        """Return the filter with which a group was joined, or the name of one to be looked up."""
        return self._filters.get(membership.group, membership.subscription)

    def _channels(self) -> list[Topic]:
        topics = list(self.app.topics)
        return [each for each in topics if isinstance(each, Topic) and each.is_iterator]

    def _is_late(self, channel: Topic, group: str, topic: str) -> bool:
        """Return whether *topic* matches a pattern, and came after *group* began."""
        # After the start, each topic that a pattern newly matches is late; one that is named never
        # is.
        if channel.pattern is None or self.is_open.is_set():
            return channel.pattern is not None
        # At the start: the group was there, and did not read this topic.
        has_begun = any(group == known for known, _ in self._known_before)
        return has_begun and (group, topic) not in self._known_before

    async def _wanted(self) -> list[tuple[Topic, str]]:
        """Return what streams read now: each channel with every topic that it reads."""
        channels = self._channels()
        existing: Mapping[str, Any] = {}
        if any(channel.pattern is not None for channel in channels):
            connection = await self.app.connect()
            existing = await asyncio.to_thread(connection.topics.all)
        return [(channel, topic) for channel in channels for topic in channel.matching(existing)]

    async def _keep_looking(self) -> None:
        """Read new topics of patterns and, within the 10 s of a first retry, retry topics."""
        while not self.should_stop:
            await self.sleep(RETRY_LOOK_S)
            await self._look()

    async def _look(self) -> None:
        if not self._is_stopping:
            try:
                await self.open_missing()
                self._outages.works("topics")
            except ActorError as error:
                said = "new topics could not be looked up, trying again: %s"
                self._outages.failed("topics", said, error)

    async def _missing_retries(
        self, wanted: Iterable[tuple[Topic, str]]
    ) -> list[tuple[Topic, str]]:
        """Return the retry topics that exist and have no feed yet, each with its channel."""
        groups = {
            (channel, retry_topic(self._membership(channel, topic).group))
            for channel, topic in wanted
            if not self._membership(channel, topic).is_broadcast
        }
        missing = sorted(groups - self._feeds.keys(), key=lambda key: key[1])
        if not missing:
            return []
        connection = await self.app.connect()
        existing = await asyncio.to_thread(connection.topics.all)
        return [key for key in missing if key[1] in existing]

    async def _join(self, channel: Topic, topic: str) -> GroupConsumer:
        """Join the group, in a thread, because joining calls the node."""
        connection = await self.app.connect()
        is_retry = topic.startswith(RETRY_PREFIX)
        if is_retry:  # another member may be creating it: then this waits for its shards
            for first in channel.topics:
                await self.app.declarations.declare(first, channel.partitions, channel.retention)
            queues = self._retry_queues(channel)
            await asyncio.to_thread(make_retry_topic, connection, topic, queues)
        else:
            is_named = channel.pattern is None
            await self.app.declarations.declare(
                topic, channel.partitions, channel.retention, create=is_named
            )
        membership = self._membership(channel, topic)
        is_alone = membership.is_private or membership.is_broadcast
        # Its queue numbers mean nothing to other topics, unless a part of a table belongs to each.
        is_alone |= is_retry and not self.app.tables
        is_late = self._is_late(channel, membership.group, topic)
        # The app's own messages, and all of a topic that was added later, must not be missed.
        is_own = is_retry or channel.internal or is_late or (channel, topic) in self._deleted
        default = self.app.conf.consumer_auto_offset_reset
        start = default if membership.start is None else membership.start
        make = partial(
            connection.consumer,
            membership.group,
            topic,
            start="earliest" if is_own else start,
            strategy=membership.strategy,
            together=None if is_alone else self.app.together,
            broadcast=membership.is_broadcast,
            client_id=self._client_id(membership),
            fetch_compression=self.app.fetch_compression,
        )
        was_matched = topic == retry_topic(membership.group)
        chosen = EVERYTHING if was_matched else membership.subscription
        place = connection.named_filters, membership.group, topic
        member = await join(partial(join_by_filter, *place, chosen, make))
        if not was_matched:
            self._filters[membership.group] = member.subscription
        return member

    def _retry_queues(self, channel: Topic) -> int | None:
        """Return how many queues a retry topic has: with tables *channel*'s, of one owner."""
        if not self.app.tables:
            return None
        return max(
            (self.app.declarations.queue_count(topic) or 1 for topic in channel.topics), default=1
        )

    def _client_id(self, membership: GroupMembership) -> str | None:
        """Return the member's client id, by which its offsets or its instance's pages are found."""
        if membership.is_broadcast:
            name: str = self.app.client_id
            return name
        return member_name(self.app.conf) if self.app.conf.web_enabled else None

    async def _open(self, channel: Topic, topic: str) -> None:
        """Join the group and read; a feed that does not start leaves its group."""
        connection = await self.app.connect()
        member = await self._join(channel, topic)
        feed = self._make_feed(channel, topic, member, connection.clock_ms)
        try:
            await feed.start()
        # A cancelled start, too, would leave a member that holds queues and reads nothing.
        except BaseException:
            await feed.close()
            raise
        self._feeds[channel, topic] = feed
        deleted = self._deleted.pop((channel, topic), None)
        if deleted is not None:
            deleted.last_unheard = None  # its agent waits no more
            logger.info("topic %s exists again, and is read from its beginning", topic)
        logger.info("group %s reads topic %s", feed.membership.group, topic)

    def _make_feed(
        self, channel: Topic, topic: str, member: GroupConsumer, clock_ms: Callable[[], int]
    ) -> Feed:
        membership = self._membership(channel, topic)
        is_retry = topic.startswith(RETRY_PREFIX)
        is_alone = membership.is_private or (is_retry and not self.app.tables)
        needs_order = bool(self.app.tables) and not membership.is_broadcast
        if self._returns is None:
            self._returns = Returns(self.app.connect, self._look)
        return Feed(
            topic,
            membership,
            member,
            channel.queue,
            rules=membership.failures.rules(
                membership.group, is_ordered=needs_order, retry_queues=self._retry_queues(channel)
            ),
            services=FeedServices(
                self._returns,
                self.app.producer.flush_before_commit,
                None if is_alone else self.app.tables,
                self.app.flow,
                clock_ms,
                self.app.tracing,
            ),
            on_failure=partial(self._feed_failed, channel, topic),
            on_lost=channel.isolation and channel.isolation.end,
        )

    def _membership(self, channel: Topic, topic: str) -> GroupMembership:
        if channel.membership is not None:
            return channel.membership
        # Without an agent, the name of the group's retry topic ends with that of its topic.
        name = topic.removeprefix(f"{RETRY_PREFIX}{group_name(self.app.conf.id)}-")
        membership: GroupMembership = self.app.membership_without_agent(name)
        return membership

    def _feed_failed(self, channel: Topic, topic: str, error: Exception) -> None:
        """Leave a deleted topic, and crash the app for any other error: its group would starve."""
        is_gone = isinstance(error, TopicNotFoundError)
        self.add_future(self._leave(channel, topic) if is_gone else self.app.crash(error))

    async def _leave(self, channel: Topic, topic: str) -> None:
        """Stop reading a deleted topic; the agent of one that it names waits for it."""
        feed = self._feeds.pop((channel, topic), None)
        if feed is None:
            return
        self._closed.append(feed)
        if channel.pattern is None and not topic.startswith(RETRY_PREFIX):
            self._deleted[channel, topic] = feed
            text = (
                f"topic {topic} was deleted; group {feed.membership.group} waits until it exists "
                f"again, and reads it then from its beginning: rocketray topics create {topic}"
            )
            feed.last_unheard = NotedFailure((await self.app.connect()).clock_ms(), text)
            logger.warning("agent %s: %s", self._agent_of(feed.membership), text)
        else:
            logger.warning("topic %s was deleted, and is not read any more", topic)
        await feed.drain(DRAIN_GRACE_S)
        await feed.close()

    def _agent_of(self, membership: GroupMembership) -> str:
        """Return the name of the agent with that membership; that of the group without one."""
        agents = self.app.agents.values()
        named = (each.name for each in agents if each.membership is membership)
        return next(named, membership.group)


async def join(make: Callable[[], GroupConsumer]) -> GroupConsumer:
    """Return the member that *make* creates in a thread; close it if the call is cancelled.

    A thread cannot be cancelled: it may still create a member, which would keep its queues, and
    read none of them, for as long as the process lives.
    """
    # Not ``to_thread``, which leaves no future by which the member could be closed afterwards.
    executor = ThreadPoolExecutor(1, "join")
    joining = executor.submit(make)
    executor.shutdown(wait=False)
    try:
        return await asyncio.wrap_future(joining)
    except asyncio.CancelledError:
        await asyncio.to_thread(joining.add_done_callback, _close_member)  # now, or when it exists
        raise


def _close_member(joined: Future[GroupConsumer]) -> None:
    if not joined.cancelled() and joined.exception() is None:
        joined.result().close()
