"""Messages being returned to the node: failed ones, to be redelivered or dead-lettered.

Messages that wait together go as one batch, whose records are whole messages. A message counts as
finished only when the node has it on disk; until then its queue is not committed past it, because a
committed offset is on disk as well. A message that cannot be stored is tried again for as long as
the app has its queue; after that it is redelivered from there, to the queue's next owner. Dead
letters and others do not wait for each other: they are on different disks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rocketray.base.marks import REAL_TOPIC
from rocketray.base.names import RETRY_PREFIX
from rocketray.base.quantity import counted
from rocketray.base.system_topics import WAITING_QUEUES, is_of_service
from rocketray.broker.retries.deliveries import Place
from rocketray.broker.retries.retry_records import RETRY_QUEUES, SentBack, in_queue
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.message import ForwardedMessage
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.store.formats.sys_flag import TRANSACTION
from rocketray.topology.connection import AppNode

logger = logging.getLogger(__name__)

WAITING_MAX = 1024  # of all feeds together, with their bodies: beyond it, failing handlers wait
_BATCH_MAX_BYTES = 4 * 1024 * 1024  # a last body of 4 MiB may double it
_RETRY_S = 1.0  # a shard or its machine may return at any moment
_REFUSED_RETRY_S = 30.0  # it is likely to be refused again, and each attempt logs an error


@dataclass(frozen=True, slots=True)
class Return:
    """One returned message, and the callback for when the node has stored it.

    It was read from the queue *source*, and waits on the disk of that. *topics* have to exist. It
    is dropped when *is_needed* says that its queue was revoked. *retry_queues* are those of
    ``FailureRules``.
    """

    back: SentBack
    source: Place
    topics: tuple[str, ...]
    on_stored: Callable[[], None]
    is_needed: Callable[[], bool]
    retry_queues: int | None = None


class Returns:
    """All returns of one app; made and used on its loop."""

    def __init__(
        self, connect: Callable[[], Awaitable[AppNode]], on_made: Callable[[], Awaitable[None]]
    ) -> None:
        """Take *on_made*, which is awaited when a topic was created that may redeliver messages.

        Its errors are logged only: the messages are stored all the same.
        """
        self._connect = connect
        self._on_made = on_made
        self.threads = {
            is_letter: ThreadPoolExecutor(1, thread_name_prefix="returns")
            for is_letter in (False, True)
        }
        """The thread that stores messages, and that for dead letters."""
        self._producer: NodeProducer | None = None
        # Both threads create topics, and share one producer.
        self._making = threading.Lock()
        self._made: set[str] = set()
        self._known: dict[str, TopicConfig] = {}
        self._waiting = {is_letter: deque[Return]() for is_letter in (False, True)}
        self._pending = 0
        self._changed = asyncio.Condition()
        self._drainers: dict[bool, asyncio.Task[None]] = {}
        self._is_closed = False

    async def wait_for_room(self) -> None:
        """Wait while too many are in flight."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._pending < WAITING_MAX)

    def put(self, one: Return) -> None:
        """Send *one* with the next batch; the caller has just waited for room."""
        self._pending += 1
        self._again(one)

    async def flush(self, grace_s: float) -> None:
        """Wait until the node has stored all that was put, for at most *grace_s*."""
        try:
            async with asyncio.timeout(grace_s), self._changed:
                await self._changed.wait_for(lambda: not self._pending)
        except TimeoutError:
            logger.warning(
                "%d failed messages could not be sent back; they are redelivered from their queues",
                self._pending,
            )

    async def close(self) -> None:
        """Drop the returns that are still in flight, and close the producer."""
        self._is_closed = True
        drainers = [*self._drainers.values()]
        for drainer in drainers:
            drainer.cancel()
        await asyncio.gather(*drainers, return_exceptions=True)
        if self._producer is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self.threads[False], self._producer.close)
        for thread in self.threads.values():
            thread.shutdown(wait=False)

    async def _drain(self, is_letter: bool) -> None:  # noqa: FBT001  # one caller
        try:
            while self._waiting[is_letter]:
                await self._send(self._batch(is_letter))
        finally:
            del self._drainers[is_letter]

    def _batch(self, is_letter: bool) -> list[Return]:  # noqa: FBT001  # one caller
        """Return the oldest waiting return, with those behind it for the same destination."""
        waiting = self._waiting[is_letter]
        first = waiting[0]
        taken: list[Return] = []
        left, size = deque[Return](), 0
        place = self._place(first)
        for one in waiting:
            if self._place(one) == place and (not taken or size < _BATCH_MAX_BYTES):
                taken.append(one)
                size += len(one.back.message.body)
            else:
                left.append(one)
        self._waiting[is_letter] = left
        return taken

    async def _send(self, batch: Sequence[Return]) -> None:
        """Store a batch; if it is refused, store each message alone: most may be accepted."""
        while batch := await self._needed(batch):
            try:
                connection = await self._connect()  # which may take as long as Ray is lost
                batch = await self._needed(batch)
                if batch:
                    await self._store(connection, batch)
            except (ShardUnavailableError, OSError) as error:
                logger.warning("sending %s back later: %s", counted(len(batch), "message"), error)
                await asyncio.sleep(_RETRY_S)
            except Exception as error:  # one failure must not end the task of all
                if len(batch) > 1:
                    for returned in batch:
                        await self._send([returned])
                    return
                logger.error(  # noqa: TRY400  # of our errors the sentence says it all
                    "message %s cannot be sent back, so its queue is not committed past it: %s",
                    batch[0].back.message.properties, error,
                    exc_info=None if isinstance(error, StreamError) else error,
                )  # fmt: skip
                asyncio.get_running_loop().call_later(_REFUSED_RETRY_S, self._again, batch[0])
                return
            else:
                for returned in batch:
                    returned.on_stored()
                await self._end(len(batch))
                return

    async def _needed(self, batch: Sequence[Return]) -> Sequence[Return]:
        """Drop those whose queues were revoked: the next owners get these messages from there."""
        needed = [one for one in batch if one.is_needed()]
        await self._end(len(batch) - len(needed))
        return needed

    async def _end(self, count: int) -> None:
        async with self._changed:
            self._pending -= count
            self._changed.notify_all()

    async def _store(self, connection: AppNode, batch: Sequence[Return]) -> None:
        count = len(self._made)
        loop = asyncio.get_running_loop()
        thread = self.threads[batch[0].back.is_dead_letter]
        await loop.run_in_executor(thread, self._store_in_thread, connection, batch)
        if len(self._made) > count:
            try:
                await self._on_made()
            except Exception:
                logger.exception("messages were sent back to topics that cannot be read yet")

    def _store_in_thread(self, connection: AppNode, batch: Sequence[Return]) -> None:
        with self._making:
            for one in batch:
                self._make_topics(connection, one)
            if self._producer is None:
                self._producer = connection.producer(ack="disk")
        topic, queue_id = batch[0].back.message.topic, batch[0].back.queue_id
        messages = [one.back.message for one in batch]
        if is_of_service(topic):
            source = self._disk_of(connection, batch[0].source)
            queue_id, disk = self._producer.links.near(source, topic, queue_id)
            messages = [self._waiting_on(connection, disk, one) for one in batch]
        self._producer.forward(topic, queue_id, messages)

    def _make_topics(self, connection: AppNode, one: Return) -> None:
        for name in sorted({*one.topics, one.back.message.topic} - self._made):
            if name.startswith(RETRY_PREFIX):
                make_retry_topic(connection, name, one.retry_queues)
            else:
                queues = WAITING_QUEUES.get(name, 1)
                connection.topics.ensure(name, queues, internal=True)
            self._made.add(name)

    def _waiting_on(self, connection: AppNode, disk: str, one: Return) -> ForwardedMessage:
        """Return the message, to be redelivered from a queue of the disk where it waits."""
        message = one.back.message
        if not disk or one.retry_queues is not None:
            return message
        topic = message.properties[REAL_TOPIC]
        config = self._known.get(topic)
        # Asked again for each message on such a disk until the retry topic has a queue there.
        if config is None or config.queue_on(disk, 0) is None:  # the disk may have joined since
            config = self._known[topic] = connection.topics.get(topic)
        return in_queue(message, config.queue_on(disk, 0) or 0)

    def _disk_of(self, connection: AppNode, source: Place) -> str:
        """Return the disk of a queue that messages are read from; the first one if it is gone."""
        topic, queue_id = source
        known = self._known.get(topic)
        if known is None or queue_id >= known.queues:
            found = connection.topics.all().get(topic)
            if found is None or queue_id >= found.queues:
                return ""
            known = self._known[topic] = found
        return known.disk_of(queue_id)

    def _place(self, one: Return) -> tuple[object, ...]:
        """Return the common key of a batch: topic, queue, state of a transaction, and disk."""
        message, (topic, queue_id) = one.back.message, one.source
        source: object = None
        if is_of_service(message.topic):
            known, source = self._known.get(topic), one.source
            if known is not None and queue_id < known.queues:
                source = known.disk_of(queue_id)
        return message.topic, one.back.queue_id, message.sys_flag & TRANSACTION, source

    def _again(self, one: Return) -> None:
        is_letter = one.back.is_dead_letter
        self._waiting[is_letter].append(one)
        if is_letter not in self._drainers and not self._is_closed:
            drain = self._drain(is_letter)
            self._drainers[is_letter] = asyncio.get_running_loop().create_task(drain)


def make_retry_topic(connection: AppNode, topic: str, queues: int | None) -> None:
    """Ensure that a retry topic has at least so many queues, and one on each disk."""
    queues = queues or RETRY_QUEUES
    if connection.topics.ensure(topic, queues, internal=True).queues < queues:
        connection.topics.alter(topic, queues)
