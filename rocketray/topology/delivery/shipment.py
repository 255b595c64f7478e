"""Messages of an app that leave together, to one destination, and the outcome of each.

Most programs do not ask where a message was stored. So a future costs nothing but its object until
it is awaited or looked at: only then its shipment knows it, and sets its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextvars import Context
from typing import Any, Self

from faust.types.tuples import TP

from rocketray.base.delay import Delay
from rocketray.base.recall import RecallHandle
from rocketray.message import Message
from rocketray.messaging.producers.batch import SendResult
from rocketray.store.batches.message_lists import GatheredMessages
from rocketray.topology.values.topic import StoredMetadata


class Shipment:
    """Messages for one topic, queue and owner, delayed or not. Used on the app's loop only."""

    __slots__ = (
        "_outcome",
        "_told",
        "_waiting",
        "delays",
        "messages",
        "owner_epoch",
        "queue_id",
        "topic",
    )

    def __init__(self, topic: str, queue_id: int | None, owner_epoch: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.owner_epoch = owner_epoch
        self.messages = GatheredMessages(topic)
        """The messages; none once their outcome is known."""
        self.delays: list[Delay] = []
        """The delay of each message, or none."""
        self._told: set[int] = set()
        self._waiting: list[tuple[int, StoredFuture]] = []
        self._outcome: Sequence[SendResult] | Exception | None = None

    def add(
        self,
        message: Message,
        delay: Delay | None,
        loop: asyncio.AbstractEventLoop,
        *,
        is_told: bool,
    ) -> StoredFuture:
        """Add a message, of which Faust tells the sensors if *is_told*; return its future."""
        future = StoredFuture(loop=loop)
        future.shipment, future.number = self, self.messages.append(message)
        if delay is not None:
            self.delays.append(delay)
        if is_told:
            self._told.add(future.number)
        return future

    def untold(self) -> Sequence[Message]:
        """Return the messages of which Faust does not tell the sensors."""
        if not self._told:
            return self.messages
        return [one for number, one in enumerate(self.messages) if number not in self._told]

    def settle(self, outcome: Sequence[SendResult] | Exception) -> None:
        """Note where each message is stored, or why none is; wake up those that wait."""
        self._outcome, self.messages = outcome, GatheredMessages(self.topic)
        waiting, self._waiting = self._waiting, []
        for number, future in waiting:
            self._set(future, number, outcome)

    def inform(self, future: StoredFuture, number: int) -> None:
        """Set the result of the future of a message, now or once it is known."""
        if self._outcome is None:
            self._waiting.append((number, future))
        else:
            self._set(future, number, self._outcome)

    def metadata(self, result: SendResult) -> StoredMetadata:
        """Return the place of a message in Faust's form."""
        handle = result.recall_handle
        topic = self.topic if handle is None else RecallHandle.parse(handle).topic
        tp = TP(topic, result.queue_id)
        stored = StoredMetadata(topic, result.queue_id, tp, result.queue_offset, None, None)
        if handle is not None:
            stored.recall_handle = handle
        return stored

    def _set(
        self, future: StoredFuture, number: int, outcome: Sequence[SendResult] | Exception
    ) -> None:
        if future.done():  # it was cancelled
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
            future.exception()  # the outbox logs it, so asyncio need not warn
        else:
            future.set_result(self.metadata(outcome[number]))


class StoredFuture(asyncio.Future[StoredMetadata]):
    """The future of one message: it joins its shipment when it is first waited for, or looked at.

    asyncio itself waits for a future of another class by these methods only.
    """

    __slots__ = ("number", "shipment")
    shipment: Shipment | None
    """The shipment, until it is joined."""
    number: int
    """The number of the message in it."""

    def _join(self) -> None:
        shipment, self.shipment = self.shipment, None
        if shipment is not None:
            shipment.inform(self, self.number)

    def __await__(self) -> Generator[Any, None, StoredMetadata]:
        """Wait until the message is stored; raise why it is not."""
        self._join()
        return super().__await__()

    __iter__ = __await__

    def done(self) -> bool:
        self._join()
        return super().done()

    def cancelled(self) -> bool:
        self._join()
        return super().cancelled()

    def result(self) -> StoredMetadata:
        self._join()
        return super().result()

    def exception(self) -> BaseException | None:
        self._join()
        return super().exception()

    def cancel(self, msg: Any | None = None) -> bool:
        self._join()
        return super().cancel(msg)

    def add_done_callback(
        self, fn: Callable[[Self], object], /, *, context: Context | None = None
    ) -> None:
        self._join()
        super().add_done_callback(fn, context=context)
