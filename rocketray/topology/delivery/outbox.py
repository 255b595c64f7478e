"""Outgoing messages of an app: sends that wait together become one batch.

``put`` queues a message and returns at once; a single thread gives the producer the messages
gathered since the last batch, so the busier the app, the larger its batches. Messages of one topic
and queue leave in the order of their sends. When too many wait, ``put`` blocks.

If a shard is unavailable for a moment, the send is repeated. A batch that cannot be stored fails
its futures, is logged, and is remembered: from then on each ``flush`` raises it. So an app never
commits input whose output was lost, nor in the commits that follow the one that failed.

An app has two outboxes. Its own messages are stored when their topics say so, as with a producer.
Changes of tables are stored when they are on disk, because the offsets committed behind them are.
They carry an ownership epoch. A shard that refuses them for it fails their futures alone: what the
app sends on behalf of other queues is stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from faust.types.tuples import TP

from rocketray.base.ack_mode import AckMode
from rocketray.base.delay import Delay
from rocketray.base.quantity import counted
from rocketray.base.recall import RecallHandle
from rocketray.errors import OwnerFencedError, ShardUnavailableError
from rocketray.message import Message
from rocketray.messaging.producers.batch import SendResult, SendResults
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.send_future import SendFuture
from rocketray.runtime.one_process import OfOneProcess
from rocketray.topology.connection import AppNode
from rocketray.topology.values.topic import StoredMetadata

logger = logging.getLogger(__name__)

# As many messages as wait are sent at once, up to this: a batch holds the only thread.
BATCH_MAX_MESSAGES = 1024
WAITING_MAX_MESSAGES = 8 * BATCH_MAX_MESSAGES  # in memory, with their bodies; then ``put`` waits
# Then the batch fails, and with it the app, at its next commit.
_RETRY_FOR_S = 30.0


@dataclass(frozen=True, slots=True)
class _Pending:
    message: Message
    queue_id: int | None
    delay: Delay | None
    future: asyncio.Future[StoredMetadata]
    is_told: bool
    owner_epoch: int


Sense = Callable[[Sequence[Message]], Callable[[object], None]]
"""Is called with messages of one topic that are sent now; what it returns, with the result of the
last one, or with the error."""


class Outbox(OfOneProcess, what="app"):
    """The sends of one app; made and used on its loop."""

    def __init__(self, producer: NodeProducer, sense: Sense | None = None) -> None:
        """Take *sense*, which is told of all messages but those of which Faust tells."""
        self._producer = producer
        self._sense = sense
        self.on_fenced: Callable[[int, int], None] | None = None
        """Is called with a queue and an ownership epoch that its shard refused; see :meth:`put`."""
        self._loop = asyncio.get_running_loop()
        # One thread keeps the order of the sends.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="outbox")
        self._waiting: deque[_Pending] = deque()
        self._changed = asyncio.Condition()
        self._drainer: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._is_told = False
        self._put_count = self._settled_count = 0

    async def put(
        self,
        message: Message,
        queue_id: int | None,
        delay: Delay | None = None,
        *,
        is_told: bool = False,
        owner_epoch: int = 0,
    ) -> asyncio.Future[StoredMetadata]:
        """Queue *message*, for *queue_id* if it names one; the future is done once it is stored.

        *is_told* says that Faust tells the sensors of it; *owner_epoch* is the ownership epoch of
        its queue, where only the owner sends to that. The future of an owner that is fenced raises
        :class:`OwnerFencedError`.
        """
        if len(self._waiting) >= WAITING_MAX_MESSAGES:
            async with self._changed:
                await self._changed.wait_for(lambda: len(self._waiting) < WAITING_MAX_MESSAGES)
        future: asyncio.Future[StoredMetadata] = self._loop.create_future()
        self._waiting.append(_Pending(message, queue_id, delay, future, is_told, owner_epoch))
        self._put_count += 1
        if self._drainer is None:
            self._drainer = self._loop.create_task(self._drain())
        return future

    async def flush(self) -> None:
        """Wait until all messages put so far are stored; raise the first failure of its lifetime.

        Messages put meanwhile are not waited for, so a busy app cannot hold a flush up.
        """
        count = self._put_count
        if self._settled_count < count:
            async with self._changed:
                await self._changed.wait_for(lambda: self._settled_count >= count)
        if self._failure is not None:
            self._is_told = True
            raise self._failure

    async def settle_sends(self) -> None:
        """As :meth:`flush`, but raise only a failure that was not reported yet."""
        was_told = self._is_told
        try:
            await self.flush()
        except Exception:
            if not was_told:
                raise

    async def close(self) -> None:
        """Send what waits, close the producer and end the thread; raise as :meth:`settle_sends`."""
        try:
            await self.settle_sends()
        finally:
            await self._loop.run_in_executor(self._thread, self._producer.close)
            self._thread.shutdown(wait=False)

    async def _drain(self) -> None:
        try:
            while self._waiting:
                count = min(len(self._waiting), BATCH_MAX_MESSAGES)
                taken = [self._waiting.popleft() for _ in range(count)]
                await self._tell()  # there is room
                await self._send(taken)
                self._settled_count += count
                await self._tell()  # a flush may be over
        finally:
            self._drainer = None

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _send(self, taken: Sequence[_Pending]) -> None:
        for group in _by_destination(taken):
            tell = self._begin_telling(group)
            try:
                results = await self._store(group)
            except Exception as error:  # noqa: BLE001  # told to every sender
                self._failed(group, error)
                tell(error)
            else:
                for pending, result in zip(group, results, strict=True):
                    _succeed(pending, result)
                tell(_metadata(group[-1], results[-1]))

    def _begin_telling(self, group: Sequence[_Pending]) -> Callable[[object], None]:
        messages = [] if self._sense is None else [one.message for one in group if not one.is_told]
        return self._sense(messages) if self._sense and messages else _say_nothing

    async def _store(self, group: Sequence[_Pending]) -> Sequence[SendResult]:
        """Send once, in the thread; wait for at most 30 s while the shard is unavailable."""
        end = self._loop.time() + _RETRY_FOR_S
        sent: list[SendFuture[SendResults]] = []
        while True:
            try:
                return await self._loop.run_in_executor(self._thread, self._call, group, sent)
            except ShardUnavailableError as error:
                delay = error.retry_after_ms / 1000
                if self._loop.time() + delay > end:
                    raise
                await asyncio.sleep(delay)

    def _call(
        self, group: Sequence[_Pending], sent: list[SendFuture[SendResults]]
    ) -> Sequence[SendResult]:
        # A repeated call waits for the batch that was begun: begun again, it could be stored twice.
        if not sent:
            messages = [one.message for one in group]
            delays = [one.delay for one in group if one.delay is not None]  # of all, or of none
            topic, queue_id = messages[0].topic, group[0].queue_id
            begin = self._producer.begin_many
            if epoch := group[0].owner_epoch:
                begin = partial(begin, owner_epoch=epoch)
            sent.append(begin(topic, messages, delays=delays, queue_id=queue_id))
        return sent[0].result()

    def _failed(self, group: Sequence[_Pending], error: Exception) -> None:
        topic = group[0].message.topic
        if isinstance(error, OwnerFencedError):
            logger.warning(
                "failed to store %s in topic %s: %s", counted(len(group), "change"), topic, error
            )
            if self.on_fenced is not None and group[0].queue_id is not None:
                self.on_fenced(group[0].queue_id, group[0].owner_epoch)
        else:
            logger.error(
                "failed to store %s in topic %s: %s", counted(len(group), "message"), topic, error
            )
            self._failure = self._failure or error
        for pending in group:
            if not pending.future.done():
                pending.future.set_exception(error)
                pending.future.exception()  # logged above, so asyncio need not warn


class Outboxes:
    """The outboxes of one app, each opened at its first use; made and used on its loop."""

    def __init__(
        self, connect: Callable[[], Awaitable[AppNode]], sense: Sense | None = None
    ) -> None:
        """Take *connect*, which returns the node that the outboxes send to; see :class:`Outbox`."""
        self._connect = connect
        self._sense = sense
        self._opened: dict[AckMode | None, Outbox] = {}
        # Two first sends open one producer.
        self._opening = asyncio.Lock()

    async def get(self, ack: AckMode | None) -> Outbox:
        """Return the outbox whose messages are stored as *ack* says, or else their topics."""
        outbox = self._opened.get(ack)
        if outbox is None:
            async with self._opening:
                if ack not in self._opened:
                    node = await self._connect()
                    producer = await asyncio.to_thread(partial(node.producer, ack=ack))
                    self._opened[ack] = Outbox(producer, self._sense)
                outbox = self._opened[ack]
        return outbox

    async def flush(self) -> None:
        """Wait until all messages put so far are stored; raise as :meth:`Outbox.flush`."""
        await _all(one.flush() for one in self._opened.values())

    async def settle_sends(self) -> None:
        """As :meth:`flush`, but raise as :meth:`Outbox.settle_sends`."""
        await _all(one.settle_sends() for one in self._opened.values())

    async def close(self) -> None:
        """Close all; raise as :meth:`settle_sends`."""
        outboxes, self._opened = self._opened, {}
        await _all(one.close() for one in outboxes.values())


async def _all(steps: Iterable[Awaitable[None]]) -> None:
    """Wait for all *steps*, then raise the first failure, with a note of each other one."""
    ended = await asyncio.gather(*steps, return_exceptions=True)
    failures = [failure for failure in ended if failure is not None]
    for other in failures[1:]:
        note = f"and another: {other!r}"
        if note not in getattr(failures[0], "__notes__", ()):  # a failure is raised many times
            failures[0].add_note(note)
    if failures:
        raise failures[0]


def _by_destination(taken: Sequence[_Pending]) -> list[list[_Pending]]:
    """Return groups of one topic, queue and owner, delayed or not, ordered by their first ones."""
    groups: dict[tuple[str, int | None, bool, int], list[_Pending]] = {}
    for one in taken:
        place = one.message.topic, one.queue_id, one.delay is not None, one.owner_epoch
        groups.setdefault(place, []).append(one)
    return list(groups.values())


def _say_nothing(_: object) -> None:
    """There are no sensors."""


def _succeed(pending: _Pending, result: SendResult) -> None:
    if not pending.future.done():
        pending.future.set_result(_metadata(pending, result))


def _metadata(pending: _Pending, result: SendResult) -> StoredMetadata:
    handle = result.recall_handle
    topic = pending.message.topic if handle is None else RecallHandle.parse(handle).topic
    tp = TP(topic, result.queue_id)
    stored = StoredMetadata(tp.topic, tp.partition, tp, result.queue_offset, None, None)
    if handle is not None:
        stored.recall_handle = handle
    return stored
