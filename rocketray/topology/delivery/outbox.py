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
from functools import partial

from rocketray.base.ack_mode import AckMode
from rocketray.base.delay import Delay
from rocketray.base.quantity import counted
from rocketray.errors import OwnerFencedError, ShardUnavailableError
from rocketray.message import Message
from rocketray.messaging.producers.batch import SendResult, SendResults
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.send_future import SendFuture
from rocketray.runtime.one_process import OfOneProcess
from rocketray.topology.connection import AppNode
from rocketray.topology.values.topic import StoredMetadata

from .shipment import Shipment

logger = logging.getLogger(__name__)

# As many messages as wait are sent at once, up to this: a batch holds the only thread.
BATCH_MAX_MESSAGES = 1024
WAITING_MAX_MESSAGES = 8 * BATCH_MAX_MESSAGES  # in memory, with their bodies; then ``put`` waits
# Then the batch fails, and with it the app, at its next commit.
_RETRY_FOR_S = 30.0


class _Round:
    """Messages that are given to the thread together, by destination, in the order of the sends."""

    __slots__ = ("count", "shipments")

    def __init__(self) -> None:
        self.count = 0
        self.shipments: dict[tuple[str, int | None, bool, int], Shipment] = {}


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
        self._rounds: deque[_Round] = deque()
        self._changed = asyncio.Condition()
        self._drainer: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._is_told = False
        self._put_count = self._taken_count = self._settled_count = 0

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
        if self._is_full():
            async with self._changed:
                await self._changed.wait_for(lambda: not self._is_full())
        filling = self._rounds[-1] if self._rounds else None
        if filling is None or filling.count >= BATCH_MAX_MESSAGES:
            filling = _Round()
            self._rounds.append(filling)
        place = message.topic, queue_id, delay is not None, owner_epoch
        shipment = filling.shipments.get(place)
        if shipment is None:
            shipment = filling.shipments[place] = Shipment(message.topic, queue_id, owner_epoch)
        filling.count += 1
        self._put_count += 1
        if self._drainer is None:
            self._drainer = self._loop.create_task(self._drain())
        return shipment.add(message, delay, self._loop, is_told=is_told)

    def _is_full(self) -> bool:
        return self._put_count - self._taken_count >= WAITING_MAX_MESSAGES

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
            while self._rounds:
                taken = self._rounds.popleft()
                self._taken_count += taken.count
                await self._tell()  # there is room
                for shipment in taken.shipments.values():
                    await self._send(shipment)
                self._settled_count += taken.count
                await self._tell()  # a flush may be over
        finally:
            self._drainer = None

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _send(self, shipment: Shipment) -> None:
        tell = self._begin_telling(shipment)
        try:
            results = await self._store(shipment)
        except Exception as error:  # noqa: BLE001  # told to every sender
            self._failed(shipment, error)
            tell(error)
        else:
            shipment.settle(results)
            tell(shipment.metadata(results[-1]))

    def _begin_telling(self, shipment: Shipment) -> Callable[[object], None]:
        if self._sense is None:
            return _say_nothing
        messages = shipment.untold()
        return self._sense(messages) if messages else _say_nothing

    async def _store(self, shipment: Shipment) -> Sequence[SendResult]:
        """Send once, in the thread; wait for at most 30 s while the shard is unavailable."""
        end = self._loop.time() + _RETRY_FOR_S
        sent: list[SendFuture[SendResults]] = []
        while True:
            try:
                return await self._loop.run_in_executor(self._thread, self._call, shipment, sent)
            except ShardUnavailableError as error:
                delay = error.retry_after_ms / 1000
                if self._loop.time() + delay > end:
                    raise
                await asyncio.sleep(delay)

    def _call(
        self, shipment: Shipment, sent: list[SendFuture[SendResults]]
    ) -> Sequence[SendResult]:
        # A repeated call waits for the batch that was begun: begun again, it could be stored twice.
        if not sent:
            begin = self._producer.begin_many
            if epoch := shipment.owner_epoch:
                begin = partial(begin, owner_epoch=epoch)
            topic, messages, delays = shipment.topic, shipment.messages, shipment.delays
            sent.append(begin(topic, messages, delays=delays, queue_id=shipment.queue_id))
        return sent[0].result()

    def _failed(self, shipment: Shipment, error: Exception) -> None:
        topic, count = shipment.topic, len(shipment.messages)
        if isinstance(error, OwnerFencedError):
            logger.warning(
                "failed to store %s in topic %s: %s", counted(count, "change"), topic, error
            )
            if self.on_fenced is not None and shipment.queue_id is not None:
                self.on_fenced(shipment.queue_id, shipment.owner_epoch)
        else:
            logger.error(
                "failed to store %s in topic %s: %s", counted(count, "message"), topic, error
            )
            self._failure = self._failure or error
        shipment.settle(error)


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

    def opened(self, ack: AckMode | None) -> Outbox | None:
        """Return what :meth:`get` does, unless it has to be opened first."""
        return self._opened.get(ack)

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


def _say_nothing(_: object) -> None:
    """There are no sensors."""
