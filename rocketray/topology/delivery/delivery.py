"""A batch of messages on its way through one agent, and the agent's position in it.

A delivery is a run ``[start, stop)`` of one consumed batch that a single handler processes. Its
cursor is the index of the message that the handler has now; everything before the cursor is passed.
No object exists per message unless the handler asks for events: to finish a message is to advance
an integer. Indexes are positions in the batch; offsets are positions in the queue.

Invariants
  1. start <= cursor <= stop, and the cursor only grows.
  2. A message is finished when the handler asks for the next one, or in manual mode when it is
     acknowledged. Where a handler raises, the cursor stays until the message is retried, returned
     or skipped (failure.py).
  3. Only a finished delivery lets ``next_queue_offset`` reach the end of its run.
  4. A message that is returned to the node is not finished before the node has stored it.
  5. Deliveries are withdrawn from their handlers at a revocation, and when an app stops. A handler
     may finish the message that it is processing; it gets no other one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from faust.events import USE_EXISTING_KEY, Event
from faust.types.tuples import Message as FaustMessage

from rocketray.base.property_string import decode_properties, encoded_values
from rocketray.broker.retries.retry_records import redeliveries_of
from rocketray.groups.failing import FailingMessage
from rocketray.message import StoredMessage
from rocketray.runtime.process_logs.log_line import MessagePlace
from rocketray.topology.values.shared_batch import DAMAGE, SharedBatch
from rocketray.topology.values.topic import Topic, is_announced

if TYPE_CHECKING:
    import pyarrow as pa

    from rocketray.broker.topics.consumed_batch import ConsumedBatch
    from rocketray.topology.values.failure_rules import FailureRules

logger = logging.getLogger(__name__)

_LOOK_S = 0.005  # the delay that a revocation may add to a handler's last message


@dataclass(slots=True)
class Acknowledgements:
    """Messages of the run ``[start, stop)`` of a batch that are finished out of order, or are not.

    Manual mode begins with :meth:`require`.
    """

    _start: int
    _stop: int
    _acked: bytearray | None = None  # in manual mode, one byte a message
    _returning: set[int] = field(default_factory=set)

    @property
    def are_required(self) -> bool:
        """Whether messages are finished by acknowledgements."""
        return self._acked is not None

    @property
    def has_any(self) -> bool:
        return self._acked is not None and 1 in self._acked

    @property
    def has_returning(self) -> bool:
        """Whether messages are being returned to the node."""
        return bool(self._returning)

    def require(self, cursor: int) -> None:
        """Finish messages from now on when they are acknowledged; those before *cursor* are."""
        if self._acked is None:
            self._acked = bytearray(self._stop - self._start)
            self._acked[: cursor - self._start] = b"\x01" * (cursor - self._start)

    def acknowledge(self, index: int) -> None:
        """Finish the message at *index*; without effect unless acknowledgements are required."""
        if self._acked is not None:
            self._acked[index - self._start] = 1

    def has(self, index: int) -> bool:
        """Return whether the message at *index* was acknowledged, so it is not delivered again."""
        return self._acked is not None and self._acked[index - self._start] == 1

    def missing(self, cursor: int) -> Iterator[int]:
        """Yield the messages before *cursor* that are required and not acknowledged yet."""
        if self._acked is not None:
            index = self._acked.find(0, 0, cursor - self._start)
            while index >= 0:
                yield self._start + index
                index = self._acked.find(0, index + 1, cursor - self._start)

    def begin_return(self, index: int) -> None:
        """Begin to return the message at *index*; it is unfinished until :meth:`returned`."""
        self.acknowledge(index)
        self._returning.add(index)

    def returned(self, index: int) -> None:
        """Record that the node has stored the message at *index*."""
        self._returning.discard(index)

    def first_unfinished(self, cursor: int) -> int:
        """Return the first unfinished message, or the end of the run, of a run with *cursor*."""
        index = cursor
        if self._acked is not None:
            found = self._acked.find(0)
            index = self._stop if found < 0 else self._start + found
        return min((index, *self._returning))


@dataclass(slots=True)
class Attempts:
    """Consecutive failures of the message at the cursor, and whether its queue is held at it."""

    count: int = 0
    """The number of failures of the message that failed last."""
    _at: int = -1
    _failing: FailingMessage | None = None

    def note(self, cursor: int) -> int:
        """Count a failure of the message at *cursor*; return the number of consecutive ones."""
        self.count = self.count + 1 if self._at == cursor else 1
        self._at = cursor
        return self.count

    def hold(self, queue_offset: int, last_attempt: int | None, reason: str) -> None:
        """Hold the queue at the message, which is at *queue_offset* and failed for *reason*."""
        self._failing = FailingMessage(queue_offset, self.count, last_attempt, reason)

    def failing(self, cursor: int) -> FailingMessage | None:
        """Return the message at *cursor* if its queue is held at it."""
        return self._failing if self._at == cursor else None


class Owner(Protocol):
    """The feed that a delivery came through."""

    @property
    def rules(self) -> FailureRules:
        """The rules for messages that fail."""

    def released(self, delivery: Delivery) -> None:
        """Note that no handler will process *delivery* any more."""

    def pass_damaged(self, delivery: Delivery, index: int, error: Exception) -> None:
        """Finish the message at *index*, which is damaged and cannot be read."""

    def count_failure(
        self, reason: str, unheard: MessagePlace | None, *, is_decoding: bool
    ) -> None:
        """Count a failed message, maybe at its decoding.

        *unheard* is its place if it failed before a handler had it.
        """

    async def give_back(
        self, delivery: Delivery, index: int, reason: str, attempts: int | None = None
    ) -> str | None:
        """Begin to return the message at *index* to the node; return a text on where it goes.

        *reason* is the error. With *attempts* the message is dead-lettered, after that many
        attempts in this process. None: it was not returned, because meanwhile it was acknowledged,
        or its queue was revoked. Raises one of ``shared_batch.DAMAGE`` where it cannot be read.
        """


@dataclass(slots=True, eq=False)
class Delivery:
    """One run of a batch, with one handler at a time. Used on the app's loop only."""

    shared: SharedBatch
    _start: int
    stop: int
    topic: str = field(init=False)
    queue_id: int = field(init=False)
    cursor: int = field(init=False)
    acks: Acknowledgements = field(init=False)
    attempts: Attempts = field(default_factory=Attempts)
    value: Any = None
    """The decoded value at the cursor."""
    is_active: bool = False
    """Whether a handler is processing it now."""
    is_withdrawn: bool = False
    """Whether its queue was revoked, or the app stops: the rest is not delivered."""
    is_leased: Callable[[], bool] = lambda: True
    """Whether its queue still belongs to the member that it came from."""
    alone_until: int = field(init=False)
    """Messages before this index are delivered one by one: they failed together with others."""
    owner: Owner | None = None
    """The owner to notify when it is released, once."""
    _event: DeliveredEvent | None = None

    def __post_init__(self) -> None:
        self.topic, self.queue_id = self.shared.batch.topic, self.shared.batch.queue_id
        self.cursor = self.alone_until = self._start
        self.acks = Acknowledgements(self._start, self.stop)

    def __len__(self) -> int:
        return self.stop - self._start

    @property
    def size_bytes(self) -> int:
        """Its share of the bytes of the batch."""
        count = len(self.shared)
        if not count:
            return 0
        # The difference of two rounded sums: the runs of a batch add up to its size exactly, so the
        # window (flow.py) returns to 0.
        size = self.shared.batch.size_bytes
        return size * self.stop // count - size * self._start // count

    @property
    def is_passed(self) -> bool:
        """Whether the handler has passed every message."""
        return self.cursor >= self.stop

    @property
    def is_begun(self) -> bool:
        """Whether a message of it is finished, or being processed."""
        return self.is_active or self.acks.has_any or self.cursor > self._start

    @property
    def is_suspended(self) -> bool:
        """Whether the lease has lapsed: nothing is delivered until the queue's owner is known."""
        return not (self.is_withdrawn or self.is_leased())

    def is_finished(self) -> bool:
        """Return whether every message is finished, so that none has to be delivered again."""
        return self.acks.first_unfinished(self.cursor) >= self.stop

    def next_queue_offset(self) -> int:
        """Return the offset that may be committed, as far as this delivery is concerned."""
        return self.shared.next_queue_offset(self.acks.first_unfinished(self.cursor))

    def unfinished_count(self) -> int:
        """Return how many messages remain, from the first unfinished one on."""
        return self.stop - self.acks.first_unfinished(self.cursor)

    def queue_offset(self) -> int:
        """Return the offset of the message at the cursor, or the one after the last message."""
        return self.shared.next_queue_offset(self.cursor)

    @property
    def failing(self) -> FailingMessage | None:
        """The message at the cursor, if its queue is held at it."""
        is_over = self.is_passed or self.is_withdrawn
        return None if is_over else self.attempts.failing(self.cursor)

    def event(self, make: Callable[[Delivery, int, Any], DeliveredEvent]) -> DeliveredEvent:
        """Return the event of the message at the cursor: the same object while the cursor stays."""
        if self._event is None or self._event.index != self.cursor:
            self._event = make(self, self.cursor, self.value)
        return self._event

    def release(self) -> None:
        """Tell the owner that no handler will process it any more: it was passed, or withdrawn."""
        self._event = None  # it refers to this delivery: a cycle would keep the whole batch
        owner, self.owner = self.owner, None
        if owner is not None:
            owner.released(self)

    def batch_end(self) -> int:
        """Return the index where a batch that begins at the cursor ends."""
        return self.cursor + 1 if self.cursor < self.alone_until else self.stop

    def to_arrow(self, columns: Sequence[str]) -> pa.RecordBatch:
        """Return the messages from the cursor to ``batch_end``, or to a damaged one, a row each."""
        return self.shared.to_arrow(tuple(columns), self.cursor, self.batch_end())


class DeliveredEvent(Event):  # type: ignore[misc]  # Faust's types are not followed
    """A Faust event over one stored message; key, headers and message are made when first read."""

    _is_open = False
    """Whether its headers were made, and so may have been changed."""

    def __init__(
        self, app: Any, delivery: Delivery, index: int, value: Any, read_key: KeyReader | None
    ) -> None:
        """Take *read_key*, which decodes the key of an event; None leaves it as bytes."""
        self.app, self.value, self.acked = app, value, False
        self.delivery, self.index = delivery, index
        if read_key is None:
            self.key = delivery.shared.keys[index]
        else:
            self._read_key = read_key

    if not TYPE_CHECKING:  # else any name would count as a part

        def __getattr__(self, name: str) -> Any:
            """Return a part that is read for the first time, and keep it."""
            if name == "key":
                made = self._read_key(self)
            elif name == "headers":
                made = encoded_values(self.delivery.shared.property_strings[self.index])
                self._is_open = True
            elif name == "message":
                made = self._faust_message()
                self._is_open = True
            else:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            setattr(self, name, made)
            return made

    @property
    def stored(self) -> StoredMessage:
        """The message itself; raises one of ``DAMAGE`` if it is damaged."""
        return self.delivery.shared.messages[self.index]

    def read_key_bytes(self) -> bytes | None:
        """Return the key as it was sent: the sharding key, else the first business key."""
        return self.delivery.shared.keys[self.index]

    key_bytes = property(read_key_bytes)

    @property
    def reconsume_times(self) -> int:
        """How often the message was redelivered to this group before."""
        return redeliveries_of(self.stored)

    def ack(self) -> bool:
        """Finish the message; return True the first time."""
        self.delivery.acks.acknowledge(self.index)
        is_first = not self.acked
        self.message.acked = self.acked = True
        return is_first

    async def forward(
        self, channel: Any, key: Any = USE_EXISTING_KEY, *more: Any, **options: Any
    ) -> Any:
        """Send the message to *channel* as it is stored, maybe with another key or other parts."""
        is_whole = not (more or options or self._is_open)
        # Receivers of the announcement get headers as bytes.
        if not is_whole or not isinstance(channel, Topic) or is_announced(self.app):
            return await super().forward(channel, key, *more, **options)
        shared, index = self.delivery.shared, self.index
        return await channel.send(
            key=shared.keys[index] if key is USE_EXISTING_KEY else key,
            value=shared.bodies[index],
            headers=decode_properties(shared.property_strings[index]),
        )

    def _faust_message(self) -> FaustMessage:
        """Return the stored message in Faust's form: key as bytes, properties as headers."""
        shared, stored = self.delivery.shared, self.stored
        return FaustMessage(
            shared.topic_of(self.index),
            shared.queue_of(self.index),
            stored.queue_offset,
            stored.store_timestamp_ms / 1000,
            1,  # Kafka's LogAppendTime
            self.headers,
            self.key_bytes,
            stored.body,
            None,
            tp=shared.tp,
            generation_id=self.app.consumer_generation_id,
        )


KeyReader = Callable[[DeliveredEvent], Any]


def position_text(delivery: Delivery, index: int | None = None) -> str:
    """Return topic, queue and offset of the message at *index*, or at the cursor, for logs."""
    offset = delivery.shared.next_queue_offset(delivery.cursor if index is None else index)
    return f"at topic {delivery.topic} queue {delivery.queue_id} offset {offset}"


def place_of(delivery: Delivery, index: int | None = None, end: int | None = None) -> MessagePlace:
    """Return where the message at *index*, or at the cursor, is; or the messages up to *end*."""
    begin = delivery.cursor if index is None else index
    offset = delivery.shared.next_queue_offset(begin)
    last = None
    if end is not None and end > begin + 1:
        last = delivery.shared.next_queue_offset(end - 1)
    message_id = None
    if last is None and begin < len(delivery.shared):
        with suppress(*DAMAGE):
            # A damaged message has no id that could be read; its place is known.
            stored = delivery.shared.messages[begin]
            message_id = stored.unique_key or stored.offset_message_id
    return MessagePlace(delivery.topic, delivery.queue_id, offset, last, message_id)


def split(batch: ConsumedBatch, parts: int) -> list[Delivery]:
    """Split *batch* into deliveries for *parts* parallel handlers; one when it is empty."""
    shared = SharedBatch(batch)
    # Four for each handler: one that is slow has a small share, and the others take the rest.
    size = max(1, len(shared) if parts == 1 else len(shared) // (4 * parts))
    # An empty batch has one, by which the commit moves past what the filter rejected.
    starts = range(0, len(shared), size) or range(1)
    return [Delivery(shared, start, min(start + size, len(shared))) for start in starts]


async def withdraw(
    deliveries: AbstractSet[Delivery],
    gaps: AbstractSet[Delivery],
    grace_s: float,
    is_leased: Callable[[], bool],
) -> None:
    """Mark *deliveries* and wait up to *grace_s* until no handler is processing one of them.

    The *gaps*, which others overtook, are marked last: otherwise finished messages behind them
    would be redelivered.
    """
    end = asyncio.get_running_loop().time() + grace_s
    for delivery in deliveries - gaps:
        delivery.is_withdrawn = True
    await _wait_while(lambda: is_leased() and any(not gap.is_passed for gap in gaps), end)
    for delivery in gaps:
        delivery.is_withdrawn = True
    await _wait_while(lambda: any(delivery.is_active for delivery in deliveries), end)


async def until_through(deliveries: Collection[Delivery], may_wait: Callable[[], bool]) -> None:
    """Wait for handlers that are processing *deliveries*, for as long as *may_wait* allows.

    As RocketMQ, whose ordered consumer keeps a queue while it processes a message of it: no other
    member starts that message a second time, or the ones behind it.
    """
    active = [one for one in deliveries if one.is_active]
    for one in active:
        logger.warning(
            "a queue is revoked, but a handler keeps it until it has finished the message %s",
            position_text(one),
        )
    await _wait_while(lambda: any(one.is_active for one in active) and may_wait(), math.inf)


async def _wait_while(condition: Callable[[], bool], end: float) -> None:
    """Wait until *condition* is false, or the loop's clock shows *end*."""
    clock = asyncio.get_running_loop().time
    while condition() and clock() < end:  # noqa: ASYNC110  # an event would cost at each message
        await asyncio.sleep(_LOOK_S)
