"""Transactions on the node: reads halves and decisions, and stores committed messages.

A plain object that is stepped. It runs where the node's own topics are. The time is an argument, by
the wall clock; checks and the age of a half are timed by an :class:`AgeClock`.

Its state is in its logs: a half is pending until an op message marks it as done. The saved progress
is only the position from which to read the logs again.

Invariants
  1. The first decision about a half counts, also after a restart. Later ones, and those of another
     group or key, are skipped. The node's own decision to abandon a half is one of them. A caller
     of :meth:`TransactionEngine.decide` gets the one that counts.
  2. A committed message is stored before the op that ends its half. If it is not known whether it
     was stored, because a process died or a call failed, its queue is first searched for it, by its
     unique key. So it is stored once.
  3. A half without a decision is checked, and then moved to a topic of abandoned halves; it is
     never dropped. A check counts only if a producer of its group fetched it.
  4. A committed message that its topic never accepts is dead-lettered (undeliverable.py). One that
     the topic does not accept now waits, with the later decisions for its queue, and blocks no
     other.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from rocketray.base.marks import PRODUCER_GROUP
from rocketray.base.quantity import counted
from rocketray.base.system_topics import END_TOPIC, GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from rocketray.base.transaction import (
    Decision,
    Verdict,
    committed,
    decision_message,
    done_offsets,
    given_up,
    immunity_ms,
    op_message,
    parse_decision,
    target,
)
from rocketray.broker.retries.deliveries import (
    LOOK_MS,
    PATIENCE_S,
    Attempt,
    OutboundDeliveries,
    Place,
    Submit,
    TargetQueues,
    at_once,
    attempt,
    portions,
    store_once,
)
from rocketray.broker.retries.undeliverable import TRANSACTION_LETTERS, half_letter
from rocketray.errors import (
    InvalidMessageError,
    InvalidNameError,
    StoreError,
    StreamError,
)
from rocketray.message import ForwardedMessage, Message, StoredMessage
from rocketray.messaging.api.system_api import TransactionCounts, TransactionOverview, UndecidedHalf
from rocketray.store.age_clock import AgeClock

from .transaction_state import Decided, Pending, TransactionLimits, TransactionProgress

_LOG = logging.getLogger(__name__)
_READ_MAX = 1024
# A producer asks each second, and its check runs once for each half, in one thread.
_CHECKS_AT_ONCE = 32
_OPS_A_MESSAGE = 200  # numbers of 19 digits and a comma: 4,000 of RocketMQ's 4,096 bytes
_STORED_AT_ONCE = 1024  # of a queue in one delivery, whose outcome is known as a whole
_BATCH_BYTES = 1024 * 1024
_RETRY_MS = 1000  # limits of time are looked at, and failed stores tried, no more often
_COPIES_MAX = 64  # decisions about one half, with those of other groups or keys


class Log(Protocol):
    """The node's own topics."""

    def read(self, topic: str, queue_offset: int, max_count: int) -> Sequence[StoredMessage]:
        """Return messages of queue 0 of a system topic, from *queue_offset* on."""

    def find(self, topic: str, key: str, max_count: int) -> Sequence[StoredMessage]:
        """Return messages of a system topic with that key or unique key, oldest first."""

    def store(self, message: Message) -> int:
        """Store a message in queue 0 of a system topic; return its queue offset."""


class TransactionEngine:
    """All transactions of a node; for one thread at a time."""

    def __init__(
        self,
        log: Log,
        targets: TargetQueues,
        progress: TransactionProgress | None = None,
        limits: TransactionLimits | None = None,
        *,
        clock: AgeClock,
        submit: Submit = at_once,
    ) -> None:
        """Resume from an earlier :meth:`progress`, or start from the beginning of the logs.

        *clock* gives the halves their store times.
        *submit* runs storing tasks, possibly in other threads.
        """
        self._log = log
        self._targets = targets
        self._limits = limits or TransactionLimits()
        self._clock = clock
        self._pending: dict[int, Pending] = {}
        self._decided: dict[int, Decided] = {}
        self._ended: Counter[str] = Counter()
        self._deliveries = OutboundDeliveries[list[int], Attempt[int]](submit)
        self._last_ms = 0
        saved = progress or TransactionProgress()
        self._half_next = saved.half_next
        self._end_next = saved.end_next
        self._op_next = saved.op_next
        self._recover(saved.checks)

    def step(self, now_ms: int) -> int | None:
        """Carry out decisions and abandon halves without one; return when to step again.

        None if only a new message can bring work.
        """
        if now_ms < self._last_ms:  # pauses end by the wall clock, which was set back
            self._deliveries.end_pauses()
        self._last_ms = now_ms
        self._read_halves()
        while self._read_decisions():
            self._carry_out(now_ms)
        self._give_up()
        self._carry_out(now_ms)
        if self._deliveries.under_way():
            return now_ms + LOOK_MS
        return now_ms + _RETRY_MS if self._pending or self._decided else None

    def decide(self, wanted: Decision) -> Verdict:
        """Store a decision, unless there is an earlier one; return the one that counts.

        It is in the log when this returns. The same decision may be stored again.

        Raises:
            StoreError: no such half is known; nothing was decided. StreamError: it is not known
                whether the decision is in the log.
        """
        self._read_halves()
        while self._read_decisions():
            pass
        half = self._pending.get(wanted.half_offset)
        if half is None:
            return self._verdict_of_old(wanted)
        if (half.unique_key, half.group) != (wanted.unique_key, wanted.group):
            raise _no_such_half(wanted)
        if wanted.half_offset not in self._decided:
            self._log.store(decision_message(wanted))
            while self._read_decisions():
                pass
        return self._decided[wanted.half_offset].verdict

    def _verdict_of_old(self, wanted: Decision) -> Verdict:
        for stored in self._log.find(END_TOPIC, wanted.unique_key, _COPIES_MAX):
            decision = parse_decision(stored)
            if decision is not None and decision[:3] == wanted[:3]:
                return Verdict(decision.outcome, stored.store_timestamp_ms, decision.decider)
        for stored in self._log.find(GIVEN_UP_TOPIC, wanted.unique_key, 1):
            if stored.properties.get(PRODUCER_GROUP) == wanted.group:  # by an older version
                return Verdict("abandon", stored.store_timestamp_ms, "node")
        raise _no_such_half(wanted)

    def checks(self, group: str) -> list[StoredMessage]:
        due, now_ms = [], self._clock.steady_ms()
        for offset, half in self._pending.items():
            wait = max(half.immune_ms, self._limits.timeout_ms)
            is_due = (
                half.group == group
                and offset not in self._decided
                and self._age_ms(half, now_ms) >= wait
                and now_ms - half.asked_ms >= self._limits.check_interval_ms
                and half.checks < self._limits.checks_max
            )
            if is_due:
                half.asked_ms, half.checks = now_ms, half.checks + 1
                due.append(offset)
                if len(due) == _CHECKS_AT_ONCE:
                    break
        halves = [self._half(offset) for offset in due]
        return [replace(half, topic=target(half)[0]) for half in halves]

    def progress(self) -> TransactionProgress:
        """Return the position from which to resume after a restart."""
        first = min(self._pending, default=None)
        ends = [decided.end_offset for decided in self._decided.values()]
        return TransactionProgress(
            half_next=self._half_next if first is None else first,
            op_next=self._op_next if first is None else self._pending[first].op_offset,
            end_next=min(ends, default=self._end_next),
            checks={half: one.checks for half, one in self._pending.items() if one.checks},
        )

    def overview(self, most: int) -> TransactionOverview:
        """Return the undecided halves, oldest first, at most *most* of them, and the counters."""
        undecided = [each for each in self._pending.items() if each[0] not in self._decided]
        halves = (
            UndecidedHalf(
                half.queue_id, offset, half.group, half.unique_key, half.stored_ms, half.checks
            )
            for offset, half in undecided[:most]
        )
        counts = (self._ended[end] for end in ("commit", "rollback", "abandon", "dead letter"))
        return TransactionOverview(tuple(halves), len(undecided), TransactionCounts(*counts))

    def _recover(self, checks: Mapping[int, int]) -> None:
        """Read the halves again, without those that are done; decisions are in doubt."""
        first_op = self._op_next
        done: set[int] = set()
        while ops := self._log.read(OP_TOPIC, self._op_next, _READ_MAX):
            for op in ops:
                done.update(done_offsets(op))
            self._op_next = ops[-1].queue_offset + 1
        # A half that is read now may be ended by any op since the saved position, so that is where
        # its ops begin.
        last_op, self._op_next = self._op_next, first_op
        self._read_halves()
        self._op_next = last_op
        for offset in done & self._pending.keys():
            del self._pending[offset]
        for offset in checks.keys() & self._pending.keys():
            self._pending[offset].checks = checks[offset]
        while self._read_decisions(in_doubt=True):
            pass

    def _age_ms(self, half: Pending, now_ms: int) -> int:
        return self._clock.age_ms(half.stored_ms, half.seen_ms, now_ms)

    def _read_halves(self) -> None:
        now_ms = self._clock.steady_ms()
        while halves := self._log.read(HALF_TOPIC, self._half_next, _READ_MAX):
            for half in halves:
                self._pending[half.queue_offset] = Pending(
                    half.properties.get(PRODUCER_GROUP, ""),
                    half.unique_key or "",
                    half.store_timestamp_ms,
                    immunity_ms(half),
                    now_ms,
                    self._op_next,
                    half.queue_id,
                )
            self._half_next = halves[-1].queue_offset + 1

    def _read_decisions(self, *, in_doubt: bool = False) -> bool:
        """Read some decisions (invariant 1); return whether there were any."""
        stored = self._log.read(END_TOPIC, self._end_next, _READ_MAX)
        if stored:
            self._read_halves()  # each is older than its decision, and may not have been read yet
        for message in stored:
            decision = parse_decision(message)
            half = decision and self._pending.get(decision.half_offset)
            if decision is None or half is None or decision.half_offset in self._decided:
                continue
            if (half.unique_key, half.group) != (decision.unique_key, decision.group):
                _LOG.warning(
                    "ignoring a decision about half %d: it is for another transaction",
                    decision.half_offset,
                )
                continue
            self._decided[decision.half_offset] = Decided(
                Verdict(decision.outcome, message.store_timestamp_ms, decision.decider),
                decision.outcome,
                message.queue_offset,
                in_doubt or decision.decider == "node",  # it may have been abandoned before
            )
        if stored:
            self._end_next = stored[-1].queue_offset + 1
        return bool(stored)

    def _give_up(self) -> None:
        """Abandon undecided halves that reached a limit."""
        limits, now_ms = self._limits, self._clock.steady_ms()
        for offset, half in self._pending.items():
            unanswered = now_ms - half.asked_ms >= limits.check_interval_ms
            is_over = half.checks >= limits.checks_max and unanswered
            is_old = self._age_ms(half, now_ms) >= limits.age_max_ms
            if (is_over or is_old) and offset not in self._decided:
                decision = Decision(offset, half.unique_key, half.group, "abandon", "node")
                try:
                    self._log.store(decision_message(decision))
                except StreamError as error:
                    _LOG.warning("transaction %s is not abandoned yet: %s", half.unique_key, error)
                    break  # the log takes none of the others either; the next step tries again
        while self._read_decisions():
            pass

    def abandon(self) -> None:
        """Wait for deliveries in progress, and ignore them: a new service starts from the logs."""
        self._deliveries.abandon()

    def settle(self, now_ms: int) -> None:
        """Wait for deliveries in progress, and process their outcomes; before the service ends."""
        while self._deliveries.under_way():
            self._settle(now_ms)

    def _carry_out(self, now_ms: int) -> None:
        self._settle(now_ms, patience_s=0.0)
        self._end([offset for offset, one in self._decided.items() if one.outcome == "rollback"])
        while self._begin(now_ms):
            self._settle(now_ms)

    def _begin(self, now_ms: int) -> bool:
        """Begin to store messages in all queues that may be tried; return whether any."""
        has_begun = False
        for place, offsets in self._by_place().items():
            if self._deliveries.may_begin(place, now_ms):
                chosen = offsets[:_STORED_AT_ONCE]
                doubtful = {offset for offset in chosen if self._decided[offset].in_doubt}
                for offset in chosen:
                    decided = self._decided[offset]
                    decided.in_doubt = decided.is_under_way = True  # until its op is written
                run = partial(self._attempt, place, chosen, doubtful)
                self._deliveries.begin(place, chosen, run)
                has_begun = True
        return has_begun

    def _settle(self, now_ms: int, patience_s: float = PATIENCE_S) -> None:
        for place, offsets, tried in self._deliveries.ended(patience_s=patience_s):
            for offset in offsets:
                self._decided[offset].is_under_way = False
            is_last = place[0] in (GIVEN_UP_TOPIC, TRANSACTION_LETTERS)
            for offset in () if is_last else tried.refused:
                decided = self._decided[offset]
                decided.outcome, decided.place = "dead letter", (TRANSACTION_LETTERS, 0)
            are_ended = self._end(tried.done)
            if are_ended and not tried.waiting and not (is_last and tried.refused):
                self._deliveries.succeeded(place)
            else:
                self._deliveries.failed(place, now_ms)

    def _by_place(self) -> dict[Place, list[int]]:
        """Return the halves to store by topic and queue, in the order of the decisions."""
        places: dict[Place, list[int]] = {}
        for offset, decided in self._decided.items():
            if decided.outcome == "rollback" or decided.is_under_way:
                continue  # its op could not be written yet, or its message is being stored
            if decided.place is None:
                decided.place = self._place(offset, decided)
            places.setdefault(decided.place, []).append(offset)
        return places

    def _place(self, offset: int, decided: Decided) -> Place:
        if decided.outcome == "commit":
            try:
                message, queue_id = committed(self._half(offset))
            except (InvalidMessageError, InvalidNameError) as error:
                _LOG.error("%s; it goes to %s", error, GIVEN_UP_TOPIC)
                decided.outcome = "abandon"
            else:
                return message.topic, queue_id
        return GIVEN_UP_TOPIC, 0

    def _attempt(self, place: Place, offsets: list[int], doubtful: set[int]) -> Attempt[int]:
        """Store messages of one queue that are not there (invariant 2); called by any thread."""

        def store(part: Sequence[int]) -> None:
            halves = ((offset, self._half(offset)) for offset in part)
            store_once(
                self._targets,
                place,
                ((_message(place, half), offset in doubtful) for offset, half in halves),
            )

        whole = Attempt[int]([], [], [])
        for part in portions(offsets, lambda offset: self._half(offset).size, _BATCH_BYTES):
            if whole.waiting:  # later messages must not overtake it
                tried = Attempt[int]([], [], part)
            else:
                tried = attempt(part, store, f"{place[0]}/{place[1]}, committed,")
            whole = Attempt(
                whole.done + tried.done,
                whole.refused + tried.refused,
                whole.waiting + tried.waiting,
            )
        return whole

    def _end(self, offsets: list[int]) -> bool:
        """Write that halves are done, and drop them; return whether that was written."""
        for start in range(0, len(offsets), _OPS_A_MESSAGE):
            part = offsets[start : start + _OPS_A_MESSAGE]
            try:
                self._op_next = self._log.store(op_message(part)) + 1
            except StreamError as error:
                _LOG.warning(
                    "the end of %s is not recorded yet: %s",
                    counted(len(part), "transaction"),
                    error,
                )
                return False
            for offset in part:
                outcome = self._decided.pop(offset).outcome
                del self._pending[offset]
                self._ended[outcome] += 1
        return True

    def _half(self, offset: int) -> StoredMessage:
        found = self._log.read(HALF_TOPIC, offset, 1)
        if not found or found[0].queue_offset != offset:
            raise StoreError(f"half message {offset} is not in {HALF_TOPIC} any more")
        return found[0]


def _message(place: Place, half: StoredMessage) -> ForwardedMessage:
    """Return the record of *half* for a place: itself, a dead letter, or its original message."""
    if place[0] == GIVEN_UP_TOPIC:
        return given_up(half)
    if place[0] == TRANSACTION_LETTERS:
        return half_letter(half)
    return committed(half).message


def _no_such_half(wanted: Decision) -> StoreError:
    return StoreError(
        f"transaction {wanted.unique_key} of producer group {wanted.group!r} is unknown: half "
        f"message {wanted.half_offset} belongs to another transaction, or was decided over 72 "
        "hours ago; look for its message in its topic"
    )
