"""The transport of a rocketray app: Faust's extension point, implemented by our data path.

The app creates it itself, not by a URL, because it needs parts that only a rocketray app has: its
connection, its outbox and its feeds.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, NoReturn

from faust.transport.base import Transport
from faust.transport.conductor import Conductor
from faust.transport.consumer import Consumer
from faust.transport.producer import Producer
from faust.types.tuples import TP

from rocketray.errors import ActorError
from rocketray.topology.faust.routes import LOOK_INTERVAL_S
from rocketray.topology.values.topic import announce

from .fetcher import FeedFetcher

logger = logging.getLogger(__name__)


async def _create_topic(
    self: Any,  # a producer or consumer of Faust's
    topic: str,
    partitions: int,
    replication: int,  # noqa: ARG001  # of Faust's interface, for Kafka
    *,
    retention: Any = None,
    **_options: Any,
) -> None:
    await self.app.declarations.declare(topic, partitions, retention)


class FeedConsumer(Consumer):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's consumer, reduced to what an app needs when its messages come through feeds.

    Each agent has a group and a member of its own (see delivery/feed.py), so nothing is fetched or
    acknowledged here. The consumer keeps these tasks in the app:

    - it runs the first assignment, which starts recovery, streams and timers;
    - it commits what the feeds finished, on a timer and when the app stops;
    - it answers an app's questions about its queues.
    """

    _is_assigned = False

    async def subscribe(self, topics: Iterable[str]) -> None:  # noqa: ARG002  # feeds know theirs
        """Start the app's flow of messages; later calls open feeds for new channels."""
        if self._is_assigned:
            await self.app.fetcher.open_missing()
            return
        self._is_assigned = True
        self.add_future(self._assign())  # awaiting it would wait for this very call

    def assignment(self) -> set[TP]:
        """Return the queues that the feeds read now."""
        return {TP(*queue) for feed in self.app.fetcher.feeds for queue in feed.assignment()}

    async def force_commit(self, *_arguments: Any, **_options: Any) -> bool:
        """Commit what is finished now, after everything that handlers sent so far is stored.

        While changes of tables have to wait, because another instance may own their parts, nothing
        is committed: their messages would count as done.
        """
        if not self.app.tables.may_change():
            return False
        # What is finished is read before the flush: the offsets never include a message whose sends
        # and changes came after it.
        told = self.app.sensors.on_commit_initiated(self)
        finished = [(feed, feed.finished()) for feed in self.app.fetcher.feeds]
        try:
            has_all = await self.app.producer.flush_before_commit()
        except Exception as error:  # noqa: BLE001  # whatever a producer raises
            await self.crash(error)  # the input is not committed, so its output is produced again
            return False
        if not has_all:  # a lease has lapsed since it was asked
            return False
        for feed, offsets in finished:
            feed.commit(offsets)
            self.app.monitor.on_tp_commit({TP(feed.topic, queue): at for queue, at in offsets})
        self.app.sensors.on_commit_completed(self, told)
        return any(offsets for _, offsets in finished)

    async def wait_empty(self) -> None:
        """Commit; the feeds were drained by their fetcher."""
        await self.commit()

    create_topic = _create_topic

    def topic_partitions(self, topic: str) -> int | None:
        """Return how many queues *topic* has; None before its first use here."""
        count: int | None = self.app.declarations.queue_count(topic)
        return count

    async def _assign(self) -> None:
        """Run Faust's first assignment. It is empty: no queue is Faust's own."""
        app = self.app
        app.on_rebalance_start()
        app.consumer_generation_id += 1
        await self.on_partitions_assigned(set(), app.consumer_generation_id)

    @Consumer.task  # type: ignore[untyped-decorator]  # mode's
    async def _find_routes(self) -> None:
        """Refresh which instance owns which queue, for web pages that are routed by key."""
        if self.app.conf.web_enabled:
            async for _ in self.itertimer(LOOK_INTERVAL_S, name="routes"):
                try:
                    await self.app.router.refresh_owners()
                except ActorError as error:
                    logger.warning("the owners of keys are unknown, trying again: %s", error)

    async def perform_seek(self) -> None:
        """Do nothing: a member starts at its group's offset."""

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Do nothing, as in :meth:`perform_seek`."""
        return {}

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)

    def _refuse(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise NotImplementedError(
            "an app's feeds read its messages; to move a group's offsets, use the rocketray "
            "command line instead of the consumer"
        )

    _commit = _getmany = _seek = _to_message = _refuse
    seek = seek_wait = position = highwater = highwaters = earliest_offsets = key_partition = (
        _refuse
    )


class OutboxProducer(Producer):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's producer, over the outbox of an app.

    Our ``Topic.send`` uses the outbox directly. This producer serves Faust's own sends, as key,
    value and headers, and its buffer for sends from code that cannot await.
    """

    async def send(  # noqa: PLR0917  # Faust's interface
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: Any,
        *,
        transactional_id: str | None = None,  # noqa: ARG002  # of Faust's interface, for Kafka
    ) -> Awaitable[Any]:
        """Queue one message; the result is done once it is stored."""
        all_headers = announce(self.app, key, value, partition, timestamp, headers)
        message = self.app.topic(topic).message(
            value or b"", None, key=key, headers=all_headers, timestamp=timestamp
        )
        future: Awaitable[Any] = await self.app.send_message(message, partition, is_told=True)
        return future

    async def send_and_wait(self, *arguments: Any, **options: Any) -> Any:
        return await (await self.send(*arguments, **options))

    async def flush(self) -> None:
        """Wait until everything sent is stored; raise a failure that was not reported yet.

        Faust's last call when an app stops; it must complete.
        """
        await self.buffer.flush()
        await self.app.flush_sends(is_commit=False)

    async def flush_before_commit(self) -> bool:
        """As :meth:`flush`, but raise every time once a message could not be stored.

        Return False if changes of tables have to wait: then nothing may be committed.
        """
        await self.buffer.flush()
        has_all: bool = await self.app.flush_sends()
        return has_all

    create_topic = _create_topic

    def supports_headers(self) -> bool:
        """Return True: headers become properties."""
        return True


class PromptConductor(Conductor):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's conductor, without its 45 s pause before it reads a topic that is added later."""

    _resubscribe_sleep_lock_seconds = 0.0

    def add(self, topic: Any) -> None:
        """Start to read *topic*; Faust would ignore a name that it knows."""
        is_new = topic not in self
        super().add(topic)
        if is_new:
            self._flag_changes()


class BatchTransport(Transport):  # type: ignore[misc]  # Faust's types are not followed
    """Faust's factory of the parts of the data path."""

    Consumer = FeedConsumer
    Producer = OutboxProducer
    Conductor = PromptConductor
    Fetcher = FeedFetcher
    default_port = 0  # of Faust's interface: a node has no port
    driver_version = "rocketray"
