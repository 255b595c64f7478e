"""The services of the shared process: transactions and delayed messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rocketray.actors.calls.endpoint import Endpoint, process_actor
from rocketray.actors.topics.catalog import SHARED_PROCESS
from rocketray.actors.topics.topics import Topics
from rocketray.message import StoredMessage
from rocketray.recall import RecallHandle
from rocketray.transaction import HALF_TOPIC, Decision, Verdict

__all__ = [
    "DELAYS",
    "SHARED_NAME",
    "TRANSACTIONS",
    "DelaysApi",
    "NodeDelays",
    "NodeTransactions",
    "TransactionCounts",
    "TransactionOverview",
    "TransactionsApi",
    "UndecidedHalf",
]

SHARED_NAME = process_actor(SHARED_PROCESS)
"""The name of the actor that runs the system services."""


@dataclass(frozen=True, slots=True)
class TransactionCounts:
    """Counters of the transactions that ended since the start."""

    committed: int = 0
    rolled_back: int = 0
    abandoned: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class UndecidedHalf:
    """A half without a decision: its offset among the halves, and the number of its checks."""

    queue_offset: int
    group: str
    unique_key: str
    stored_ms: int
    checks: int


@dataclass(frozen=True, slots=True)
class TransactionOverview:
    """The oldest halves without a decision, their total number, and the counters of all."""

    halves: tuple[UndecidedHalf, ...] = ()
    undecided: int = 0
    counts: TransactionCounts = TransactionCounts()


class TransactionsApi(Protocol):
    """The calls about transactions; see ``TransactionService``."""

    def checks(self, group: str) -> list[StoredMessage]:
        """Return the half messages whose outcome a producer of *group* has to check."""

    def decide(self, wanted: Decision, *, to_disk: bool) -> Verdict:
        """Store a decision unless there is an earlier one; return the one that counts.

        Raises:
            ShardUnavailableError: it is not known whether there is one; the call may be repeated.
        """

    def overview(self, most: int) -> TransactionOverview:
        """Return the undecided transactions, the oldest *most* of them."""


class DelaysApi(Protocol):
    """The calls about delayed messages; see ``DelayService``."""

    def recall(self, handle: str) -> bool:
        """Recall a delayed message; False if it was delivered or recalled before."""

    def is_waiting(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether the delayed message there is neither delivered nor recalled."""


TRANSACTIONS = Endpoint(SHARED_NAME, TransactionsApi)
DELAYS = Endpoint(SHARED_NAME, DelaysApi)


class NodeTransactions:
    """The transactions of a node, also before it has any."""

    def __init__(self, service: TransactionsApi, topics: Topics) -> None:
        self._service = service
        self._topics = topics
        self.checks = service.checks
        """Return the half messages whose outcome a producer of a group has to check."""
        self.decide = service.decide
        """See :meth:`TransactionsApi.decide`."""

    def overview(self, most: int) -> TransactionOverview:
        """Return the undecided transactions, the oldest *most* of them."""
        if HALF_TOPIC not in self._topics.all():  # no transaction was ever begun
            return TransactionOverview()
        return self._service.overview(most)


class NodeDelays:
    """The delayed messages of a node."""

    def __init__(self, service: DelaysApi) -> None:
        self._service = service
        self.is_waiting = service.is_waiting
        """See :meth:`DelaysApi.is_waiting`."""

    def recall(self, handle: str) -> bool:
        """Recall a delayed message, so it is never delivered; False if it is too late or done.

        Raises:
            InvalidMessageError: *handle* is no handle, or not one of this node.
        """
        RecallHandle.parse(handle)  # before the first delayed message, no process can check it
        return self._service.recall(handle)
