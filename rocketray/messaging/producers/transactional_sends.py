"""Transactional sends: messages that are delivered only after their transaction is committed.

First a half message is stored, which no consumer reads; then the program does its own work; then it
commits or rolls back. If it dies before that, the node asks another producer of its group, or the
next one that starts, for the outcome of the work (see transaction_engine.py).

Invariants
  1. A call that returns without an error is final: the node has this decision, and none before it.
  2. While a transaction is open in this process, no producer of this process answers checks for it:
     work in progress has no outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Literal, Self
from weakref import WeakValueDictionary

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.base.system_topics import (
    END_TOPIC,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    WAITING_QUEUES,
)
from rocketray.base.transaction import Decider, Decision, Outcome, half_message
from rocketray.errors import (
    ConfigError,
    ShardUnavailableError,
    StreamError,
    TransactionDecidedError,
)
from rocketray.message import Message, StoredMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.files.paths import control_path
from rocketray.runtime.one_process import OfOneProcess

from .send_future import MessageFuture

_LOG = logging.getLogger(__name__)
# RocketMQ's broker calls a producer; here each producer asks, so a check reaches it a second after
# it is due at most.
_ASK_INTERVAL_S = 1.0
_LEVEL_MAX = len(DELAY_LEVELS_MS)
_OPEN: WeakValueDictionary[str, Transaction] = WeakValueDictionary()
"""The open transactions of all producers of this process, by unique key (invariant 2)."""
os.register_at_fork(after_in_child=_OPEN.clear)  # their work is the parent's alone

CheckAnswer = Literal["commit", "rollback", "unknown"]
Check = Callable[[StoredMessage], CheckAnswer]


class Transaction:
    """One message that waits for its decision; as a context, committed unless the block raises."""

    def __init__(self, transactions: Transactions, unique_key: str) -> None:
        self.transactions = transactions
        self.message_id = unique_key
        """The unique key of its message, now and when it is committed."""
        self.half: MessageFuture | None = None
        """Its half message, once that is sent."""
        self.target: tuple[str, int] | None = None
        """The topic and the queue in which its message is to arrive."""
        self.to_disk = False
        """Whether its decision is to be on disk: as its half message is."""
        self._outcome: Outcome | None = None
        _OPEN[unique_key] = self

    @property
    def half_place(self) -> tuple[int, int]:
        """The queue and the queue offset of its half message. Waits until it is stored."""
        assert self.half is not None
        half = self.half.result()
        return half.queue_id, half.queue_offset

    def check_open(self, transactions: Transactions | None) -> None:
        """Raise :class:`ConfigError` unless a producer may send the message of this transaction."""
        if transactions is not self.transactions:
            raise ConfigError(
                f"transaction {self.message_id} is another producer's; send with the producer that "
                "began it"
            )
        if self._outcome is not None:
            raise ConfigError(
                f"transaction {self.message_id} was decided before: {self._outcome}; begin another"
            )
        if self.half is not None:
            raise ConfigError(
                f"transaction {self.message_id} has its message: a transaction is one message, as "
                "in RocketMQ; begin one for each"
            )

    def commit(self) -> None:
        """Commit the message: final when this returns, delivered soon after.

        A transaction without a message is over, and nothing more happens.

        Raises:
            TransactionDecidedError: it was decided otherwise before: by a check, which another
                producer of the group answered, or by the node, which abandoned it. Its message is
                not delivered.
            TopicNotFoundError: the topic of its message was deleted, and nothing is decided: create
                the topic and commit again, or roll back.
            ShardUnavailableError: it is not known whether it is committed; commit again.
            ConfigError: this program rolled it back before.
        """
        if self.target is not None and self._outcome is None:
            self.transactions.check_target(*self.target)
        self._decide("commit")

    def rollback(self) -> None:
        """Roll the message back: it is never delivered; raises as :meth:`commit`."""
        self._decide("rollback")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        """Commit, or roll back if the block raised; does nothing if it was decided inside."""
        if self._outcome is not None:
            return
        if error is None:
            self.commit()
            return
        try:
            self.rollback()
        except StreamError as failure:  # the error of the block matters more
            _LOG.warning("transaction %s is not rolled back yet: %s", self.message_id, failure)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        """Decide as :meth:`__exit__`, in a thread."""
        await asyncio.to_thread(self.__exit__, kind, error)

    def _decide(self, outcome: Outcome) -> None:
        if self._outcome not in (None, outcome):
            raise ConfigError(
                f"transaction {self.message_id} was decided before: {self._outcome}; it cannot "
                "be changed"
            )
        self.close()
        if self.half is not None:
            self.transactions.decide(
                self.half_place, self.message_id, outcome, to_disk=self.to_disk
            )
        self._outcome = outcome

    def close(self) -> None:
        """Allow answers to checks from now on: the transaction's work is over."""
        _OPEN.pop(self.message_id, None)


class Transactions(OfOneProcess, what="producer"):
    """The transactions of one producer, and its answers to checks, also for dead producers."""

    def __init__(
        self,
        node: NodeClient,
        group: str,
        check: Check,
        new_unique_key: Callable[[], str],
    ) -> None:
        """Take *check*, which returns the outcome of a message's work, from the message alone.

        It is called in a thread of its own, for messages of any producer of *group* that were not
        decided in time: ``"commit"``, ``"rollback"`` or ``"unknown"``, which asks again later. The
        transaction may still be open in another process: the check may return "rollback" only for
        messages older than the longest transaction, and "unknown" before.
        """
        self._node = node
        self._group = group
        self._check = check
        self._new_unique_key = new_unique_key
        # The half topic last: the node's service begins when it exists, and reads the others.
        for topic in (GIVEN_UP_TOPIC, OP_TOPIC, END_TOPIC, HALF_TOPIC):
            node.topics.ensure(topic, 1)
        self._may_delay = False  # whether the topic in which delayed messages wait exists
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_answering, daemon=True, name="checks")
        self._thread.start()

    def begin(self) -> Transaction:
        """Return a new transaction, which has no message yet."""
        return Transaction(self, self._new_unique_key())

    def half(
        self, message: Message, queue_id: int, transaction: Transaction, level: int
    ) -> Message:
        """Return the form in which *message* waits for its decision, in the half topic.

        With *level*, 1 to 18, it is delivered that long after the commit.
        """
        if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= _LEVEL_MAX:
            raise ConfigError(f"delay level {level!r:.60}: levels are 1 to {_LEVEL_MAX}, 0 is none")
        if level and not self._may_delay:
            self._node.topics.ensure(SCHEDULE_TOPIC, WAITING_QUEUES[SCHEDULE_TOPIC])
            self._may_delay = True
        return half_message(message, queue_id, self._group, transaction.message_id, level)

    def check_target(self, topic: str, queue_id: int) -> None:
        """Raise :class:`TopicNotFoundError` if the topic of a queue was deleted.

        The coordinator is asked only if the queue is not on the client's disk. A commit does not
        depend on its answer.
        """
        if not control_path(self._node.data, topic, queue_id).exists():
            with contextlib.suppress(ShardUnavailableError):
                self._node.topics.get(topic)

    def decide(
        self,
        half_place: tuple[int, int],
        unique_key: str,
        outcome: Outcome,
        decider: Decider = "producer",
        *,
        to_disk: bool = True,
    ) -> None:
        """Decide on a half message, and bring that *to_disk*; raises as ``Transaction.commit``."""
        queue_id, offset = half_place
        wanted = Decision(offset, unique_key, self._group, outcome, decider)
        try:
            decided = self._node.transactions.decide(queue_id, wanted, to_disk=to_disk)
        except ShardUnavailableError as error:
            raise ShardUnavailableError(
                error.what,
                f"the outcome of the {outcome} of transaction {unique_key} is unknown; {outcome} "
                f"it again, which is safe: {error.reason}",
                error.retry_after_ms,
            ) from error
        if decided.outcome != outcome:
            raise TransactionDecidedError(unique_key, outcome, *decided)

    def answer_checks(self) -> int:
        """Fetch the node's checks, and answer them; return how many there were."""
        asked = self._node.transactions.checks(self._group)
        for message in asked:
            unique_key = message.unique_key or ""
            answer = "unknown" if unique_key in _OPEN else self._answer(message)
            if answer != "unknown":
                try:
                    place = message.queue_id, message.queue_offset
                    self.decide(place, unique_key, answer, "check")
                except TransactionDecidedError as error:
                    _LOG.info("the answer to a check was too late: %s", error)
        return len(asked)

    def close(self) -> None:
        """Stop the thread; the node checks undecided transactions."""
        self._closed.set()
        self._thread.join()
        for transaction in list(_OPEN.values()):
            if transaction.transactions is self:
                transaction.close()

    def _answer(self, message: StoredMessage) -> CheckAnswer:
        try:
            answer = self._check(message)
        except Exception:  # noqa: BLE001  # the user's function; the node checks again
            _LOG.exception(
                "the check of transaction %s failed; it is repeated later", message.unique_key
            )
            return "unknown"
        if answer in ("commit", "rollback", "unknown"):
            return answer
        _LOG.error(
            "the check of transaction %s answered %r, not 'commit', 'rollback' or 'unknown'; it "
            "is repeated later",
            message.unique_key,
            answer,
        )
        return "unknown"

    def _keep_answering(self) -> None:
        while not self._closed.wait(_ASK_INTERVAL_S):
            try:
                self.answer_checks()
            except StreamError as error:
                _LOG.warning("transaction checks could not be answered, trying again: %s", error)
