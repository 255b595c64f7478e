"""Transactional sends: messages that are delivered only after their transaction is committed.

First a half message is stored, which no consumer reads; then the program does its own work; then it
commits or rolls back. If it dies before that, the node asks another producer of its group, or the
next one that starts, for the outcome of the work (see transaction_service.py).

Invariants
  1. A call that returns without an error is final: the node has this decision, and none before it.
  2. While a transaction is open in this process, no producer of this process answers checks for it:
     work in progress has no outcome.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self
from weakref import WeakValueDictionary

from rocketray.delay import DELAY_LEVELS_MS, SCHEDULE_TOPIC, WAITING_QUEUES
from rocketray.errors import (
    ConfigError,
    ShardUnavailableError,
    StreamError,
    TransactionDecidedError,
)
from rocketray.message import SHARDING_KEY, Message, StoredMessage
from rocketray.transaction import (
    END_TOPIC,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    Decider,
    Decision,
    Outcome,
    Verdict,
    half_message,
)

from .batch import AckMode
from .producer import Producer
from .queue_link import Shards

__all__ = ["Check", "CheckAnswer", "Transaction", "TransactionNode", "TransactionProducer"]

_LOG = logging.getLogger(__name__)
_ASK_INTERVAL_S = 1.0
_OPEN: MutableMapping[str, Transaction]  # of all producers of this process; see invariant 2

CheckAnswer = Literal["commit", "rollback", "unknown"]
Check = Callable[[StoredMessage], CheckAnswer]


class TransactionNode(Shards, Protocol):
    """The node calls that a transactional producer needs."""

    def transaction_checks(self, group: str) -> list[StoredMessage]:
        """Return the messages for which a producer of *group* is asked to decide."""

    def decide_transaction(self, wanted: Decision, *, to_disk: bool) -> Verdict:
        """Store a decision, unless there is an earlier one; return the one that is final.

        Raises:
            ShardUnavailableError: it is not known whether there is one now; the call may be
                repeated.
        """


class Transaction:
    """One message that waits for its decision; as a context, committed unless the block raises."""

    def __init__(self, producer: TransactionProducer, unique_key: str) -> None:
        self.producer = producer
        self.message_id = unique_key
        """The unique key of the message, now and when it is committed."""
        self.half_offset = -1
        self._outcome: Outcome | None = None
        _OPEN[unique_key] = self

    def commit(self) -> None:
        """Commit the message: final when this returns, delivered soon after.

        Raises:
            TransactionDecidedError: it was decided otherwise before: by a check, which another
                producer of the group answered, or by the node, which abandoned it. Its message is
                not delivered.
            ShardUnavailableError: it is not known whether it is committed; commit again.
            ConfigError: this program rolled it back before.
        """
        self._decide("commit")

    def rollback(self) -> None:
        """Roll the message back: it is never delivered; raises as :meth:`commit`."""
        self._decide("rollback")

    def __enter__(self) -> Self:
        """Return the transaction itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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

    def _decide(self, outcome: Outcome) -> None:
        if self._outcome not in (None, outcome):
            raise ConfigError(
                f"transaction {self.message_id} was decided before: {self._outcome}; it cannot "
                "be changed"
            )
        self.close()
        self.producer.decide(self.half_offset, self.message_id, outcome)
        self._outcome = outcome

    def close(self) -> None:
        """Allow answers to checks from now on: the transaction's work is over."""
        _OPEN.pop(self.message_id, None)


_OPEN = WeakValueDictionary()


class TransactionProducer:
    """A producer of transactions for one group; it also answers checks of dead group members."""

    def __init__(
        self, node: TransactionNode, group: str, check: Check, *, ack: AckMode = "memory"
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
        for topic in (GIVEN_UP_TOPIC, OP_TOPIC, END_TOPIC, HALF_TOPIC):
            node.create_topic(topic, 1)
        self._may_delay = False  # whether the topic in which delayed messages wait exists
        self._producer = Producer(node, ack=ack)
        self._to_disk = ack == "disk"
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_answering, daemon=True, name="checks")
        self._thread.start()

    def begin(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        queue_selector: None = None,
        delay_level: int = 0,
    ) -> Transaction:
        """Store a message that is not delivered before the transaction is committed.

        With *delay_level*, 1 to 18, it is delivered that long after the commit. RocketMQ's
        transactions have no *queue_selector*, and neither have these.

        Raises:
            TopicNotFoundError: there is no such topic.
            ConfigError: there is no such delay level, or a queue selector is given.
            InvalidMessageError: messages of that topic cannot be transactional.
        """
        if queue_selector is not None:
            raise ConfigError(
                "a transaction has no queue selector, as in RocketMQ: give queue_id=, or "
                "sharding_key= for messages that are to keep their order"
            )
        named = {**(properties or {}), **({SHARDING_KEY: sharding_key} if sharding_key else {})}
        message = Message(topic, body, tags, keys, named)
        queue = self._producer.choose_queue(topic, queue_id, sharding_key)
        if not 0 <= delay_level <= len(DELAY_LEVELS_MS):
            raise ConfigError(
                f"delay level {delay_level}: levels are 1 to {len(DELAY_LEVELS_MS)}, 0 is none"
            )
        if delay_level and not self._may_delay:
            self._node.create_topic(SCHEDULE_TOPIC, WAITING_QUEUES[SCHEDULE_TOPIC])
            self._may_delay = True
        unique_key = self._producer.new_unique_key()
        half = half_message(message, queue, self._group, unique_key, delay_level)
        transaction = Transaction(self, unique_key)
        transaction.half_offset = self._producer.send_of_node(half, 0).result().queue_offset
        return transaction

    def decide(
        self, half_offset: int, unique_key: str, outcome: Outcome, decider: Decider = "producer"
    ) -> None:
        """Decide on a half message; raises as :meth:`Transaction.commit`."""
        wanted = Decision(half_offset, unique_key, self._group, outcome, decider)
        try:
            found = self._node.decide_transaction(wanted, to_disk=self._to_disk)
        except ShardUnavailableError as error:
            raise ShardUnavailableError(
                error.shard,
                error.retry_after_ms,
                f"it is not known whether the {outcome} of transaction {unique_key} counts; "
                f"{outcome} it again, which is safe: {error.reason}",
            ) from error
        if found.outcome != outcome:
            raise TransactionDecidedError(unique_key, outcome, *found)

    def answer_checks(self) -> int:
        """Fetch the node's checks, and answer them; return how many there were.

        Raises:
            StreamError: the node does not answer.
        """
        asked = self._node.transaction_checks(self._group)
        for message in asked:
            unique_key = message.unique_key or ""
            answer = "unknown" if unique_key in _OPEN else self._answer(message)
            if answer != "unknown":
                try:
                    self.decide(message.queue_offset, unique_key, answer, "check")
                except TransactionDecidedError as error:
                    _LOG.info("an answer came too late: %s", error)
        return len(asked)

    def close(self) -> None:
        """Stop the thread and release the rings; the node checks undecided transactions."""
        self._closed.set()
        self._thread.join()
        for transaction in list(_OPEN.values()):
            if transaction.producer is self:
                transaction.close()
        self._producer.close()

    def __enter__(self) -> Self:
        """Return the producer itself; closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _answer(self, message: StoredMessage) -> CheckAnswer:
        try:
            answer = self._check(message)
        except Exception:  # noqa: BLE001  # the user's function; the node checks again
            _LOG.exception("the check of transaction %s failed; asked later", message.unique_key)
            return "unknown"
        if answer in ("commit", "rollback", "unknown"):
            return answer
        _LOG.error(
            "the check of transaction %s answered %r, not 'commit', 'rollback' or 'unknown'; "
            "asked later",
            message.unique_key,
            answer,
        )
        return "unknown"

    def _keep_answering(self) -> None:
        while not self._closed.wait(_ASK_INTERVAL_S):
            try:
                self.answer_checks()
            except StreamError as error:
                _LOG.warning("no answers about transactions, trying again: %s", error)
