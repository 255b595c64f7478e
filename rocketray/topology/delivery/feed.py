"""The path of messages from one group member to the handlers of this process.

One thread per feed polls the member, which blocks with the GIL released, and passes batches to the
app's loop. Everything else happens on the loop: deliveries go into the queue of the channel that
the handlers read, and the ledger decides what may be committed. A window bounds the messages
between poll and handler (flow.py), so a slow handler stops the polling instead of filling memory.

Invariants
  1. A committed message was finished by a handler, rejected by the filter, or returned to the node
     and stored there.
  2. No more than the flow limits plus one poll is in flight, and one poll more for each rebalance
     meanwhile: a poll that changes owners does not wait for room. A revocation waits for the
     handler that is processing a message of that queue: for 5 s, and where order is kept until the
     handler has finished or the lease has lapsed.
  3. Nothing is delivered while other members may own the queues: see groups/lease.py.
  4. After ``drain`` no handler starts another message of this feed.
  5. An ordered feed resumes a queue when that one has room, however full the others are.
  6. With several handlers, an ordered feed has at most one delivery of a queue with them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import (
    dead_lettered,
    redeliveries_of,
    retry_topic,
    sent_back,
)
from rocketray.broker.topics.consumed_batch import ConsumedBatch
from rocketray.errors import ActorError, ShardUnavailableError
from rocketray.groups.failing import FailingMessage
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.process_logs.log_line import MessagePlace, place_extra
from rocketray.topology.values.failure_rules import FailureRules
from rocketray.topology.values.group import GroupMembership
from rocketray.topology.values.shared_batch import DAMAGE

from .delivery import Delivery, place_of, position_text, split, until_through, withdraw
from .feed_spans import FeedSpans
from .flow import FlowLimits, SharedWindow, Window
from .noted_failure import NotedFailure
from .offset_ledger import OffsetLedger
from .overdue import NOT_ACKNOWLEDGED, OverdueWatch
from .returns import Return, Returns

if TYPE_CHECKING:
    from rocketray.tracing import Tracing

logger = logging.getLogger(__name__)

POLL_TIMEOUT_S = 0.1  # bounds the wait of a stop for the thread
POLL_MAX_MESSAGES = 4096  # of a queue: with 1024 the costs of a batch are twice those of its rows
PIECE_BYTES = 8 * 1024 * 1024  # decoded at once; or one message
# For handlers, and again for what they sent back; heartbeats, of another thread, keep the lease.
_REVOKE_TIMEOUT_S = 5.0


class QueueTables(Protocol):
    """The receiver of gained and lost queues, for an app's tables."""

    async def gain(self, holder: Feed, queue_ids: Iterable[int]) -> None:
        """Let *holder* read these queues once this returns."""

    async def lose(self, holder: Feed, queue_ids: Iterable[int]) -> None:
        """Record that *holder* no longer reads these queues."""


class _Outlet:
    """Passes deliveries on to the queue that the handlers read.

    If *is_ordered*, a queue's next delivery waits until no handler has the previous one. Otherwise
    handlers that share a queue of deliveries would process one queue in parallel.
    """

    def __init__(self, hand_on: Callable[[Delivery], None], *, is_ordered: bool) -> None:
        self._hand_on = hand_on
        self._is_ordered = is_ordered
        self._waiting: dict[int, deque[Delivery]] = {}  # by queue; handlers have the first of each

    def put(self, delivery: Delivery) -> None:
        if self._is_ordered:
            waiting = self._waiting.setdefault(delivery.queue_id, deque())
            waiting.append(delivery)
            if len(waiting) > 1:
                return
        self._hand_on(delivery)

    def released(self, delivery: Delivery) -> None:
        if self._is_ordered:
            waiting = self._waiting[delivery.queue_id]
            assert waiting[0] is delivery
            waiting.popleft()
            if waiting:
                self._hand_on(waiting[0])
            else:
                del self._waiting[delivery.queue_id]


@dataclass(frozen=True, slots=True)
class FeedStatistics:
    """Counters since the feed was opened, as those of an agent (see ``AgentStatistics``).

    ``unfinished`` is the current number. ``unheard`` are failures before a handler had the message.
    """

    batches: int = 0
    received: int = 0
    unfinished: int = 0
    sent_back: int = 0
    dead_lettered: int = 0
    overdue: int = 0
    damaged: int = 0
    unheard: int = 0
    decode_failures: int = 0


@dataclass(frozen=True, slots=True)
class FeedServices:
    """What a feed uses of its app.

    *flush_sends* returns when all that was sent is stored; False while changes of tables wait.
    *tables* is None for a feed whose queue numbers are unrelated to the app's tables, *tracing*
    where the app has none.
    """

    returns: Returns
    flush_sends: Callable[[], Awaitable[bool]]
    tables: QueueTables | None
    flow: FlowLimits
    clock_ms: Callable[[], int]
    tracing: Tracing | None = None


class Feed:
    """Moves the messages of one member, as the ``Owner`` of deliveries; for the app's loop."""

    def __init__(
        self,
        topic: str,
        membership: GroupMembership,
        member: GroupConsumer,
        channel_queue: Any,
        *,
        rules: FailureRules,
        services: FeedServices,
        on_failure: Callable[[Exception], None],
        on_lost: Callable[[str, Iterable[int]], None] | None = None,
    ) -> None:
        """Take *on_lost*, which is called with the topic and the queues that the feed lost."""
        self.topic = topic
        self.membership = membership
        self.rules = rules
        self._counts: Counter[str] = Counter()
        self.last_unheard: NotedFailure | None = None
        """What failed last before a handler had it."""
        self._member = member
        put = channel_queue.force_put_nowait  # in every mode: it bypasses Faust's flow control
        self._outlet = _Outlet(put, is_ordered=rules.is_ordered and membership.handlers > 1)
        self._services, self._tables = services, services.tables
        self._on_failure, self._on_lost = on_failure, on_lost
        self._spans: FeedSpans | None = None
        if services.tracing is not None:
            self._spans = FeedSpans(services.tracing, membership, services.clock_ms)
        self._giving_back: set[asyncio.Task[None]] = set()
        self._gained: set[int] = set()  # the queues whose parts of tables are recovered here
        self._given_up: set[int] = set()  # of those, the ones that have another owner by now
        self._loop = asyncio.get_running_loop()
        self._ledger = OffsetLedger()
        self._watch = OverdueWatch(membership.group)
        self._flow = flow = services.flow
        self._window = SharedWindow(flow, member.wake) if rules.rests else Window(flow)
        self._is_held = False
        self._closing = threading.Event()  # no more polls, and nothing is delivered
        self._leaving = threading.Event()  # finished messages are committed: nothing to wait for
        self._thread = threading.Thread(
            target=self._run, name=f"feed {membership.group}", daemon=True
        )

    async def start(self) -> None:
        """Begin to poll, once the tables have recovered the parts of the queues."""
        await self._gain(self._new_queues())
        self._member.on_revoke = self._revoked_in_thread
        self._thread.start()

    def finished(self) -> list[tuple[int, int]]:
        """Return (queue id, next queue offset) of queues that advanced since the last commit."""
        overdue = self._watch.find_overdue(self._ledger.outstanding(), self._services.clock_ms())
        if overdue and not self._closing.is_set():
            task = self._loop.create_task(self._give_back_overdue(overdue))
            self._giving_back.add(task)
            task.add_done_callback(self._giving_back.discard)
        moved = self._ledger.advance()
        self._member.report_failing(self.failing())
        self._hold_span()
        return moved

    def commit(self, offsets: Iterable[tuple[int, int]]) -> None:
        """Tell the member how far queues are finished, except of revoked ones."""
        for queue_id, next_offset in offsets:
            if queue_id not in self._given_up and self._ledger.commit(queue_id, next_offset):
                begun_ms = 0 if self._spans is None else self._spans.clock_ms()
                self._member.commit(self.topic, queue_id, next_offset)
                if self._spans is not None:
                    self._spans.settled(self.topic, queue_id, next_offset, begun_ms)

    def epoch(self, queue_id: int) -> int:
        return self._member.ownership.epoch(queue_id)

    def give_up(self, queue_id: int, newest_epoch: int) -> None:
        """Deliver and commit no more of a queue, and have the member release it; on the loop.

        A table's changelog refused its ownership epoch, for the *newest_epoch*; 0 if it is unknown.
        """
        self._given_up.add(queue_id)
        self._member.ownership.give_up(queue_id, newest_epoch)

    def failing(self) -> dict[int, FailingMessage]:
        """Return the message at which each held queue is held."""
        found: dict[int, FailingMessage] = {}
        for delivery in self._ledger.outstanding():
            if delivery.failing is not None:
                found.setdefault(delivery.queue_id, delivery.failing)
        return found

    def assignment(self) -> frozenset[tuple[str, int]]:
        """Return the (topic, queue id) pairs that the member reads now."""
        return self._member.assignment()

    def statistics(self) -> FeedStatistics:
        unfinished = sum(delivery.unfinished_count() for delivery in self._ledger.outstanding())
        return FeedStatistics(**self._counts, unfinished=unfinished, overdue=self._watch.count)

    async def drain(self, grace_s: float) -> None:
        """Deliver nothing more, and wait up to *grace_s* for handlers to finish their messages."""
        self._closing.set()
        await self._withdraw(list(self._ledger.outstanding()), grace_s)

    async def close(self) -> None:
        """Leave the group; call after ``drain`` and the last ``commit``."""
        self._closing.set()
        self._leaving.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)
        try:
            await asyncio.to_thread(self._member.close)
        except ActorError as error:
            logger.warning(
                "group %s: the member on topic %s could not leave, so its queues are reassigned "
                "when its session ends, and uncommitted messages are redelivered: %s",
                *(self.membership.group, self.topic, error),
            )
        await self._lose(set(self._gained))

    def _run(self) -> None:
        """Poll in the thread while there is room or need, until the feed closes or one fails."""
        try:
            while not self._closing.is_set():
                if self._window.wait_for_room(POLL_TIMEOUT_S) or self._member.needs_rebalance:
                    self._poll()
        except Exception as error:  # noqa: BLE001  # the app decides what a dead feed means
            self._call_on_loop(self._on_failure, error)

    def _poll(self) -> None:
        begun_ms = 0 if self._spans is None else self._spans.clock_ms()
        try:
            count = min(POLL_MAX_MESSAGES, self._window.queue_poll_max)
            batches = self._member.poll(POLL_TIMEOUT_S, count, self._window.full)
        except ShardUnavailableError as error:
            # Here, and below, the thread waits and the loop goes its way: other feeds continue.
            logger.warning("group %s: %s", self.membership.group, error)
            self._closing.wait(error.retry_after_ms / 1000)
            return
        self._gain_in_thread()
        self._window.share({queue_id for _, queue_id in self._member.assignment()})
        if batches:
            if self._spans is not None:
                self._spans.received(batches, begun_ms)
            for batch in batches:
                self._window.add(batch.queue_id, len(batch), batch.size_bytes)
            self._call_on_loop(self._accept, batches)

    def _gain_in_thread(self) -> None:
        """Have the tables recover the parts of newly assigned queues; in the thread."""
        while (new := self._new_queues()) and not self._closing.is_set():
            try:
                asyncio.run_coroutine_threadsafe(self._gain(new), self._loop).result()
            except ShardUnavailableError as error:
                logger.warning("group %s: %s", self.membership.group, error)
                self._closing.wait(error.retry_after_ms / 1000)

    def _new_queues(self) -> set[int]:
        return {queue_id for _, queue_id in self._member.assignment()} - self._gained

    async def _gain(self, queue_ids: set[int]) -> None:
        if self._tables is not None:
            await self._tables.gain(self, queue_ids)
        self._gained |= queue_ids

    async def _lose(self, queue_ids: set[int]) -> None:
        self._gained -= queue_ids
        self._given_up -= queue_ids
        if self._on_lost is not None:
            self._on_lost(self.topic, queue_ids)
        if self._tables is not None:
            await self._tables.lose(self, queue_ids)

    def _call_on_loop(self, function: Callable[..., None], argument: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, argument)

    def _accept(self, batches: Sequence[ConsumedBatch]) -> None:
        """Record the deliveries and queue those that hold messages; on the loop."""
        if self._closing.is_set():
            return  # not in the ledger, so never committed: the next member gets them
        self._counts["batches"] += len(batches)
        parts = 1 if self.rules.is_ordered else self.membership.handlers
        for batch in batches:
            if batch.queue_id in self._given_up:
                self._window.remove(batch.queue_id, len(batch), batch.size_bytes)
                continue
            self._counts["received"] += len(batch)
            for piece in batch.pieces(PIECE_BYTES):
                for delivery in split(piece, parts):
                    delivery.owner = self
                    delivery.is_leased = self._is_leased
                    if delivery.shared.is_retry and self._tables is not None:
                        delivery.alone_until = delivery.stop  # each is of another queue
                    self._ledger.add(delivery)
                    if len(delivery):
                        self._outlet.put(delivery)
        self._hold_span()

    def _hold_span(self) -> None:
        """Stop reading while too many messages are behind an unfinished one.

        As RocketMQ, this does not apply where order is kept: a queue whose message fails again and
        again would hold up all others. The window bounds the messages that wait for a handler, but
        not those passed without an acknowledgement, so these count here in any case.
        """
        queue_id, span = self._ledger.span(self._flow.span)
        is_over = span > self._flow.span
        if is_over and self.rules.rests:
            waiting = self._ledger.outstanding()
            is_over = any(
                delivery.acks.are_required for delivery in waiting if delivery.queue_id == queue_id
            )
        if is_over and not self._is_held:
            logger.warning(
                "group %s pauses: %d messages of topic %s queue %d follow one that is not finished",
                *(self.membership.group, span, self.topic, queue_id),
            )
        if is_over != self._is_held:
            self._is_held = is_over
            self._window.hold(held=is_over)

    @property
    def is_leased(self) -> bool:
        return self._member.is_leased

    def _is_leased(self) -> bool:
        return self.is_leased

    def released(self, delivery: Delivery) -> None:
        self._window.remove(delivery.queue_id, len(delivery), delivery.size_bytes)
        self._ledger.drop_finished(delivery.queue_id)
        self._outlet.released(delivery)
        if self._is_held:
            self._hold_span()

    def count_failure(
        self, reason: str, unheard: MessagePlace | None, *, is_decoding: bool
    ) -> None:
        if unheard is not None:
            self._counts["unheard"] += 1
            self.last_unheard = NotedFailure(system_clock_ms(), reason, unheard)
        self._counts["decode_failures"] += is_decoding

    async def give_back(
        self, delivery: Delivery, index: int, reason: str, attempts: int | None = None
    ) -> str | None:
        if self.membership.is_broadcast:
            delivery.acks.acknowledge(index)
            return "and was skipped, as in every broadcast group"
        await self._services.returns.wait_for_room()
        if delivery.is_withdrawn or delivery.acks.has(index):
            return None
        stored, rules = delivery.shared.messages[index], self.rules
        if attempts is None:
            back = sent_back(
                stored,
                rules.group,
                rules.max_attempts,
                rules.dead_letters,
                rules.retry_queues,
                reason=reason,
            )
        else:
            times = redeliveries_of(stored) + attempts - 1
            back = dead_lettered(stored, rules.group, rules.dead_letters, times, reason=reason)
        topics = retry_topic(rules.group), SCHEDULE_TOPIC
        if back.is_dead_letter:
            topics = (rules.dead_letters, rules.dead_letters)
        on_stored = partial(self._returned, delivery, index, back.is_dead_letter)
        is_needed = partial(self._ledger.holds, delivery)
        source = self.topic, delivery.queue_id
        self._services.returns.put(
            Return(back, source, topics, on_stored, is_needed, rules.retry_queues)
        )
        delivery.acks.begin_return(index)
        if back.is_dead_letter:
            return f"attempt {back.message.reconsume_times}, goes to {rules.dead_letters}"
        delay_s = DELAY_LEVELS_MS[back.queue_id] // 1000
        return f"attempt {back.message.reconsume_times}, sent back for {delay_s} s"

    def pass_damaged(self, delivery: Delivery, index: int, error: Exception) -> None:
        self._counts["damaged"] += 1
        delivery.acks.acknowledge(index)
        logger.error(
            "group %s: the message %s is damaged and is not delivered: %s",
            *(self.membership.group, position_text(delivery, index), error),
        )

    async def _give_back_overdue(self, overdue: Iterable[tuple[Delivery, int]]) -> None:
        """Return messages that were passed and never acknowledged to the node; see overdue.py."""
        for delivery, index in overdue:
            if not (delivery.is_withdrawn or delivery.acks.has(index)):
                try:
                    await self.give_back(delivery, index, NOT_ACKNOWLEDGED)
                except DAMAGE as error:
                    self.pass_damaged(delivery, index, error)

    def _returned(self, delivery: Delivery, index: int, is_dead_letter: bool) -> None:  # noqa: FBT001  # one caller
        delivery.acks.returned(index)
        counted = {"sent_back": int(not is_dead_letter), "dead_lettered": int(is_dead_letter)}
        self._counts.update(counted)
        self._member.count_returns(**counted)
        if is_dead_letter:
            logger.info(
                "group %s: the message %s is in %s now",
                *(self.rules.group, position_text(delivery, index), self.rules.dead_letters),
                extra=place_extra(place_of(delivery, index)),
            )

    def _revoked_in_thread(self, queues: frozenset[tuple[str, int]]) -> None:
        """Finish and commit *queues* before the member releases them, also while the app stops."""
        if self._leaving.is_set() or self._loop.is_closed():
            return
        queue_ids = [queue_id for topic, queue_id in queues if topic == self.topic]
        asyncio.run_coroutine_threadsafe(self._revoke(queue_ids), self._loop).result()

    async def _revoke(self, queue_ids: Sequence[int]) -> None:
        lost = set(queue_ids)
        taken = [one for one in self._ledger.outstanding() if one.queue_id in lost]
        await self._withdraw(taken, _REVOKE_TIMEOUT_S)
        if self.rules.is_ordered:
            await until_through(taken, self._may_keep_queues)
        if any(one.acks.has_returning for one in taken):
            await self._services.returns.flush(_REVOKE_TIMEOUT_S)
        finished = self.finished()
        # The offsets may not be committed if a change of a table before them had to stay unsent.
        if await self._services.flush_sends() or self._tables is None:
            self.commit(finished)
        self._ledger.forget_queues(lost)
        await self._lose(lost)

    def _may_keep_queues(self) -> bool:
        return self._is_leased() and not self._leaving.is_set()

    async def _withdraw(self, deliveries: Iterable[Delivery], grace_s: float) -> None:
        waiting = set(deliveries)
        await withdraw(waiting, self._ledger.gaps() & waiting, grace_s, self._is_leased)
