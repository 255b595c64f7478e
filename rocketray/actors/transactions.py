"""Transactions, the node's side: reads halves and decisions, and makes committed messages.

A plain object that is stepped. It runs where the node's own topics live; time comes in.

What it knows is in its logs: a half is pending until an op message says that it is done with. The
progress that it saves only tells from where to read them again.

Invariants
  1. The first decision about a half counts; later ones and those of strangers are passed over.
  2. A committed message is stored before the op that ends its half. Where it is not known whether
     it was stored, because a process died or a call failed, its own queue is asked for its unique
     key first: so it is stored once.
  3. A half that nobody decides is asked about, and then kept in a topic of its own; it is never
     dropped. Asking counts only when a producer of its group came for the question.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from rocketray.errors import (
    InvalidMessageError,
    InvalidNameError,
    MessageTooLargeError,
    StreamError,
    TopicNotFoundError,
)
from rocketray.message import ForwardedMessage, Message, StoredMessage
from rocketray.transaction import (
    END_TOPIC,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    PRODUCER_GROUP,
    Outcome,
    committed,
    done_offsets,
    given_up,
    immunity_ms,
    op_message,
    parse_decision,
    target,
)

__all__ = ["Places", "TransactionCounts", "TransactionLimits", "TransactionService"]

_LOG = logging.getLogger(__name__)
_READ_MAX = 1024
_CHECKS_AT_ONCE = 32
_OPS_A_MESSAGE = 200  # their numbers stay below RocketMQ's 4096 bytes
_NEVER = (TopicNotFoundError, InvalidNameError, InvalidMessageError, MessageTooLargeError)
_BATCH_BYTES = 1024 * 1024
_RETRY_MS = 1000


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """When a half is asked about, how often at most, and how old it may become.

    RocketMQ's ``transactionTimeOut``, ``transactionCheckInterval``, ``transactionCheckMax`` and
    ``fileReservedTime``.
    """

    timeout_ms: int = 6_000
    check_interval_ms: int = 30_000
    checks_max: int = 15
    age_max_ms: int = 72 * 3_600_000


class Places(Protocol):
    """The logs that transactions live in."""

    def read(self, topic: str, queue_offset: int, max_count: int) -> Sequence[StoredMessage]:
        """Messages of queue 0 of one of the node's own topics, from *queue_offset* on."""

    def store(self, message: Message) -> int:
        """Store a message in queue 0 of one of the node's own topics; its queue offset."""

    def forward(self, queue_id: int, messages: Sequence[ForwardedMessage]) -> None:
        """Store messages of one topic, all or none of them."""

    def is_stored(self, topic: str, queue_id: int, unique_key: str) -> bool:
        """Whether a queue has a message with that unique key."""


@dataclass(slots=True)
class _Pending:
    """A half without an outcome; ``op_offset`` is where ops stood when it was met."""

    group: str
    unique_key: str
    stored_ms: int
    immune_ms: int
    op_offset: int
    checks: int = 0
    asked_ms: int = -(10**18)


@dataclass(slots=True)
class _Decided:
    """A decision that is not carried out yet."""

    outcome: Outcome | Literal["give up"]
    end_offset: int
    in_doubt: bool


@dataclass(frozen=True, slots=True)
class TransactionCounts:
    """``pending`` is now; the others count since the start."""

    pending: int
    committed: int
    rolled_back: int
    given_up: int


class TransactionService:
    """All transactions of a node."""

    def __init__(
        self,
        places: Places,
        progress: Mapping[str, Any] | None = None,
        limits: TransactionLimits | None = None,
    ) -> None:
        """Go on from what :meth:`progress` said at some time; from the beginning without it."""
        self._places = places
        self._limits = limits or TransactionLimits()
        self._pending: dict[int, _Pending] = {}
        self._decided: dict[int, _Decided] = {}
        self._ended: Counter[str] = Counter()
        saved = progress or {}
        self._half_next = int(saved.get("halfOffset", 0))
        self._end_next = int(saved.get("endOffset", 0))
        self._op_next = int(saved.get("opOffset", 0))
        checks = {int(half): int(count) for half, count in saved.get("checks", {}).items()}
        self._recover(checks)

    def step(self, now_ms: int) -> int | None:
        """Carry out what was decided and give up what nobody decides; when to step again.

        None when only a new message can bring something to do.
        """
        self._read_halves()
        while self._read_decisions():
            self._carry_out()
        self._give_up(now_ms)
        self._carry_out()
        return now_ms + _RETRY_MS if self._pending or self._decided else None

    def checks(self, group: str, now_ms: int) -> list[StoredMessage]:
        """The half messages whose fate a producer of *group* is to tell now, as they were sent."""
        due = []
        for offset, half in self._pending.items():
            wait = max(half.immune_ms, self._limits.timeout_ms)
            is_due = (
                half.group == group
                and offset not in self._decided
                and now_ms - half.stored_ms >= wait
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

    def progress(self) -> dict[str, Any]:
        """From where to go on after a restart; may be older than the logs, never newer."""
        first = min(self._pending, default=None)
        ends = [decided.end_offset for decided in self._decided.values()]
        return {
            "version": 1,
            "halfOffset": self._half_next if first is None else first,
            "opOffset": self._op_next if first is None else self._pending[first].op_offset,
            "endOffset": min(ends, default=self._end_next),
            "checks": {str(half): one.checks for half, one in self._pending.items() if one.checks},
        }

    def counts(self) -> TransactionCounts:
        """Counters."""
        ended = self._ended
        return TransactionCounts(
            len(self._pending), ended["commit"], ended["rollback"], ended["give up"]
        )

    def _recover(self, checks: Mapping[int, int]) -> None:
        """Meet the halves again, but for those that are done with; decisions are in doubt."""
        first_op = self._op_next
        done: set[int] = set()
        while ops := self._places.read(OP_TOPIC, self._op_next, _READ_MAX):
            for op in ops:
                done.update(done_offsets(op))
            self._op_next = ops[-1].queue_offset + 1
        last_op, self._op_next = self._op_next, first_op
        self._read_halves()
        self._op_next = last_op
        for offset in done & self._pending.keys():
            del self._pending[offset]
        for offset in checks.keys() & self._pending.keys():
            self._pending[offset].checks = checks[offset]
        while self._read_decisions(in_doubt=True):
            pass

    def _read_halves(self) -> None:
        while halves := self._places.read(HALF_TOPIC, self._half_next, _READ_MAX):
            for half in halves:
                self._pending[half.queue_offset] = _Pending(
                    half.properties.get(PRODUCER_GROUP, ""),
                    half.unique_key or "",
                    half.store_timestamp_ms,
                    immunity_ms(half),
                    self._op_next,
                )
            self._half_next = halves[-1].queue_offset + 1

    def _read_decisions(self, *, in_doubt: bool = False) -> bool:
        """Take note of some decisions (invariant 1); whether there were any."""
        stored = self._places.read(END_TOPIC, self._end_next, _READ_MAX)
        if stored:
            self._read_halves()  # each is older than its decision, and was not met yet perhaps
        for message in stored:
            decision = parse_decision(message)
            half = decision and self._pending.get(decision.half_offset)
            if decision is None or half is None or decision.half_offset in self._decided:
                continue
            if (half.unique_key, half.group) != (decision.unique_key, decision.group):
                _LOG.warning("a decision about half %d is a stranger's", decision.half_offset)
                continue
            self._decided[decision.half_offset] = _Decided(
                decision.outcome, message.queue_offset, in_doubt
            )
        if stored:
            self._end_next = stored[-1].queue_offset + 1
        return bool(stored)

    def _give_up(self, now_ms: int) -> None:
        """Decide for the halves that nobody decides."""
        limits = self._limits
        for offset, half in self._pending.items():
            unanswered = now_ms - half.asked_ms >= limits.check_interval_ms
            is_over = half.checks >= limits.checks_max and unanswered
            if is_over or now_ms - half.stored_ms >= limits.age_max_ms:
                self._decided.setdefault(offset, _Decided("give up", self._end_next, in_doubt=True))

    def _carry_out(self) -> None:
        self._end([offset for offset, one in self._decided.items() if one.outcome == "rollback"])
        for (topic, queue_id), offsets in self._by_place().items():
            try:
                self._store(topic, queue_id, offsets)
            except _NEVER as error:
                _LOG.error(
                    "%s; %d committed messages go to %s", error, len(offsets), GIVEN_UP_TOPIC
                )
                for offset in offsets:
                    self._decided[offset].outcome = "give up"
            except StreamError as error:
                _LOG.warning("committed messages wait for topic %s: %s", topic, error)
            else:
                self._end(offsets)

    def _by_place(self) -> dict[tuple[str, int], list[int]]:
        """The halves that are to be stored in a topic, in the order of the decisions."""
        places: dict[tuple[str, int], list[int]] = {}
        for offset, decided in self._decided.items():
            if decided.outcome == "rollback":
                continue  # its op could not be written yet
            place = GIVEN_UP_TOPIC, 0
            if decided.outcome == "commit":
                try:
                    message, queue_id = committed(self._half(offset))
                    place = message.topic, queue_id
                except InvalidMessageError as error:
                    _LOG.error("%s; it goes to %s", error, GIVEN_UP_TOPIC)
                    decided.outcome = "give up"
            places.setdefault(place, []).append(offset)
        return places

    def _store(self, topic: str, queue_id: int, offsets: Sequence[int]) -> None:
        """Store the messages of one queue, each unless it is there (invariant 2)."""
        waiting: list[ForwardedMessage] = []
        size = 0
        for offset in offsets:
            decided, half = self._decided[offset], self._half(offset)
            if decided.in_doubt and self._places.is_stored(topic, queue_id, half.unique_key or ""):
                continue
            decided.in_doubt = True  # until its op is written
            is_over = topic == GIVEN_UP_TOPIC
            waiting.append(given_up(half) if is_over else committed(half).message)
            size += half.size
            if size >= _BATCH_BYTES:
                self._places.forward(queue_id, waiting)
                waiting, size = [], 0
        if waiting:
            self._places.forward(queue_id, waiting)

    def _end(self, offsets: list[int]) -> None:
        """Write that halves are done with, and forget them."""
        for start in range(0, len(offsets), _OPS_A_MESSAGE):
            part = offsets[start : start + _OPS_A_MESSAGE]
            try:
                self._op_next = self._places.store(op_message(part)) + 1
            except StreamError as error:
                _LOG.warning("the end of %d transactions is not noted yet: %s", len(part), error)
                return
            for offset in part:
                outcome = self._decided.pop(offset).outcome
                del self._pending[offset]
                self._ended[outcome] += 1

    def _half(self, offset: int) -> StoredMessage:
        [half] = self._places.read(HALF_TOPIC, offset, 1)
        return half
