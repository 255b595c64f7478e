"""The services of a disk's shared process: transactions and delayed messages."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

from rocketray.base.recall import RecallHandle
from rocketray.base.system_topics import HALF_TOPIC, WAITING_QUEUES
from rocketray.base.transaction import Decision, Verdict
from rocketray.broker.disks.disks_api import DisksApi
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.process_names import SHARED_PROCESS
from rocketray.broker.topics.topics import Topics
from rocketray.errors import StreamError
from rocketray.message import StoredMessage
from rocketray.runtime.calls.endpoint import (
    CallTransport,
    Endpoint,
    client_of,
    on_disk,
    process_actor,
)


def services_of(disk: str) -> str:
    """Return the name of the actor that runs the services of a disk."""
    return process_actor(on_disk(SHARED_PROCESS, disk))


@dataclass(frozen=True, slots=True)
class TransactionCounts:
    """Counters of the transactions that ended since the start."""

    committed: int = 0
    rolled_back: int = 0
    abandoned: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class UndecidedHalf:
    """A half without a decision: its queue and offset there, and the number of its checks."""

    queue_id: int
    queue_offset: int
    group: str
    unique_key: str
    stored_ms: int
    checks: int


@dataclass(frozen=True, slots=True)
class TransactionOverview:
    """The oldest halves without a decision, their total number, and the counters of all.

    Those on the disks in ``unknown`` are not among them: these disks do not answer.
    """

    halves: tuple[UndecidedHalf, ...] = ()
    undecided: int = 0
    counts: TransactionCounts = TransactionCounts()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingByMinute:
    """The delayed messages of a disk by the minute in which they are due.

    ``minutes`` has the first ones: the begin of each, in milliseconds since 1970, and its number of
    messages. ``later`` is the number of messages of all minutes behind them.
    """

    minutes: tuple[tuple[int, int], ...] = ()
    later: int = 0


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
        """Recall a delayed message; False if it was delivered or recalled before.

        Raises:
            InvalidMessageError: *handle* is invalid, or not one of this node.
        """

    def is_waiting(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether the delayed message there is neither delivered nor recalled."""

    def waiting(self) -> int:
        """Return the number of messages that wait on the disk."""

    def by_minute(self, most: int) -> WaitingByMinute:
        """Return the messages that wait on the disk, in detail for the first *most* minutes."""


class NodeTransactions:
    """The transactions of a cluster, also before it has any: those of a disk are decided there."""

    def __init__(self, transport: CallTransport, topics: Topics, disks: DisksApi) -> None:
        self._transport = transport
        self._topics = topics
        self._disks = disks
        self._halves: TopicConfig | None = None  # its queues stay on their disks

    def checks(self, group: str) -> list[StoredMessage]:
        """Return the half messages whose outcome a producer of a group has to check.

        Those on disks that do not answer are checked when they do.
        """
        return [half for disk in self._there()[0] for half in self._service(disk).checks(group)]

    def decide(self, half_queue: int, wanted: Decision, *, to_disk: bool) -> Verdict:
        """See :meth:`TransactionsApi.decide`; the half is in that queue of the half topic."""
        try:
            if self._halves is None or half_queue >= self._halves.queues:
                self._halves = self._topics.get(HALF_TOPIC)
            self._halves.check_queue(half_queue)
            disk = self._halves.disk_of(half_queue)
            return self._service(disk).decide(wanted, to_disk=to_disk)
        except StreamError:
            self._halves = None  # the topic may be another one by now
            raise

    def overview(self, most: int) -> TransactionOverview:
        """Return the undecided transactions, the oldest *most* of them."""
        there, unknown = self._there()
        found = [self._service(disk).overview(most) for disk in there]
        halves = sorted(
            (half for one in found for half in one.halves), key=lambda half: half.stored_ms
        )
        counts = [
            sum(getattr(one.counts, field.name) for one in found)
            for field in fields(TransactionCounts)
        ]
        undecided = sum(one.undecided for one in found)
        return TransactionOverview(
            (*halves[:most],), undecided, TransactionCounts(*counts), (*unknown,)
        )

    def undecided(self, disk: str) -> int:
        """Return the number of transactions on a disk that are not decided."""
        config = self._topics.all().get(HALF_TOPIC)
        if config is None or disk not in config.by_disk():
            return 0
        return self._service(disk).overview(0).undecided

    def _there(self) -> tuple[list[str], list[str]]:
        """Return the disks with halves that answer, and those that do not."""
        config = self._topics.all().get(HALF_TOPIC)
        if config is None:  # no transaction was ever begun
            return [], []
        disks = [*config.by_disk()]
        if disks == [""]:  # the coordinator's own: a report says no more than the call itself will
            return disks, []
        reports = self._disks.reports()
        return [one for one in disks if one in reports], [
            one for one in disks if one not in reports
        ]

    def _service(self, disk: str) -> TransactionsApi:
        return client_of(self._transport, Endpoint(services_of(disk), TransactionsApi))


class NodeDelays:
    """The delayed messages of a cluster: those of a disk are known there."""

    def __init__(self, transport: CallTransport, topics: Topics) -> None:
        self._transport = transport
        self._topics = topics

    def is_waiting(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        return self._of(topic, queue_id).is_waiting(topic, queue_id, queue_offset)

    def waiting(self, disk: str) -> int:
        """Return the number of messages that wait on a disk."""
        return self._on(disk).waiting() if self._has_queues(disk) else 0

    def by_minute(self, disk: str, most: int) -> WaitingByMinute:
        """Return the messages that wait on a disk, in detail for the first *most* minutes."""
        return self._on(disk).by_minute(most) if self._has_queues(disk) else WaitingByMinute()

    def recall(self, handle: str) -> bool:
        """Recall a delayed message, so it is never delivered; False if it is too late or done.

        Raises:
            InvalidMessageError: *handle* is no handle, or not one of this node.
        """
        place = RecallHandle.parse(handle)  # before the first one, no process can check it
        return self._of(place.topic, place.queue_id).recall(handle)

    def _has_queues(self, disk: str) -> bool:
        topics = self._topics.all()
        return any(disk in topics[name].by_disk() for name in WAITING_QUEUES if name in topics)

    def _of(self, topic: str, queue_id: int) -> DelaysApi:
        """Return the service that has a queue; that of the first disk knows of none beyond them."""
        config = self._topics.all().get(topic)
        is_known = config is not None and queue_id < config.queues
        return self._on(config.disk_of(queue_id) if config is not None and is_known else "")

    def _on(self, disk: str) -> DelaysApi:
        return client_of(self._transport, Endpoint(services_of(disk), DelaysApi))
