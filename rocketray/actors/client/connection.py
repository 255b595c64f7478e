"""A connection to a running node, with the calls that a cluster serves.

A connection finds the node by its data directory (DATA/node.json), joins its Ray, and calls the
named actors. Calls that fail because an actor is unavailable raise :class:`ShardUnavailableError`;
Ray restarts the actors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, Unpack
from weakref import WeakSet

from rocketray.actors.consumers.member import GroupConsumer
from rocketray.actors.explaining.explanation import Explanation
from rocketray.actors.explaining.inquiry import inquire
from rocketray.actors.files.home import Home
from rocketray.actors.filtering.engine import FilterStatistics
from rocketray.actors.filtering.lag import FilteredLag, lag_questions
from rocketray.actors.groups.group_administration import GroupQuestion
from rocketray.actors.groups.group_descriptions import GroupDescription
from rocketray.actors.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.actors.groups.member_options import MemberOptions, check_member
from rocketray.actors.ipc.ring import Ack
from rocketray.actors.journal.group_journal import JournalEntry
from rocketray.actors.producers.options import ProducerOptions
from rocketray.actors.producers.producer import Producer
from rocketray.actors.ray_process.ray_runtime import (
    GetTimeoutError,
    RayError,
    RayTaskError,
    join_ray,
    pinned,
    raised_there,
    ray,
)
from rocketray.actors.remote.remote_consumer import Member, RemoteGroupConsumer
from rocketray.actors.runtime.clock import system_clock_ms
from rocketray.actors.runtime.machine import whereabouts
from rocketray.actors.shards.owned_shard import Question
from rocketray.actors.shards.shard_writer import ShardStatistics
from rocketray.actors.shards.stored_facts import StoredFacts
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.actors.topics.queue_tail import QueueTail
from rocketray.actors.topics.topic_start import STEP_S, QueueStarter, Started, TopicProgress
from rocketray.actors.transactions.transaction_state import TransactionOverview
from rocketray.data_directory import data_directory
from rocketray.errors import (
    InvalidMessageError,
    NodeNotRunningError,
    ShardUnavailableError,
    StreamError,
)
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage
from rocketray.names import QueuesPerProcess
from rocketray.recall import RecallHandle
from rocketray.store.retention import KEEP_ALL, RetentionPolicy
from rocketray.transaction import HALF_TOPIC, Decision, Verdict

from .actor_names import COORDINATOR_NAME, FILTER_NAME, RETRY_AFTER_MS, SHARED_NAME, find_actor
from .finding import find_node
from .gateway_calls import GatewayCalls
from .lookup import find_by_offset_id, merge
from .shard_calls import ShardCalls, shards_of

__all__ = ["Connection", "lose_node", "node_placement"]

_LOG = logging.getLogger(__name__)
CALL_TIMEOUT_S = 60.0
_LOOK_S = 1.0
_CONNECTIONS: WeakSet[Connection] = WeakSet()
"""The connections of this process, for :func:`lose_node`."""


def node_placement() -> dict[str, Any]:
    """Return the options that bind an actor to the machine of the node whose Ray is joined."""
    home: Home = ray.get(find_actor(COORDINATOR_NAME).home.remote(), timeout=CALL_TIMEOUT_S)
    return pinned(home)


def lose_node(data: Path, error: StreamError) -> None:
    """Have every connection of this process to the node on *data* raise *error* from now on."""
    for connection in list(_CONNECTIONS):
        if connection.data == data:
            connection.lose(error)


class Connection:
    """A process's link to one node, created by :meth:`open`; safe to use from several threads."""

    def __init__(self, data: Path, node: Mapping[str, Any] | None = None) -> None:
        """Connect to the node of the Ray that is joined; *node* is the content of node.json."""
        self.data = data
        self.node = node
        self._producers: list[Producer] = []
        self._coordinator = find_actor(COORDINATOR_NAME)
        self._gates: dict[tuple[str, int], _Gate] = {}
        self._left: StreamError | None = None
        _CONNECTIONS.add(self)

    @classmethod
    def open(cls, data: Path | str | None = None) -> Connection:
        """Connect to the node whose data directory is *data* (see :mod:`rocketray.data_directory`).

        Raises:
            ConfigError: *data* is empty, or no path.
            NodeNotRunningError: no node runs there. NodeElsewhereError: it runs on another machine.
        """
        directory = data_directory(data).resolve()
        node = find_node(directory)
        if not ray.is_initialized():
            token = node.get("tokenPath")
            join_ray(
                str(node["address"]),
                str(node.get("authMode", "")),
                token and Path(str(token)),
                node.get("raylet"),
            )
        return Connection(directory, node)

    def lose(self, error: StreamError) -> None:
        """Raise *error* from now on: Ray is lost, and a call would wait or start another Ray."""
        self._left = error
        self._coordinator = _Left(error)
        for producer in self._producers:
            producer.lose(error)

    def keep(self, producer: Producer) -> None:
        """Close *producer* with the connection, and notify it when the node is lost."""
        self._producers.append(producer)

    def clock_ms(self) -> int:
        """Return the node's clock in milliseconds since 1970; tests of the testing kit move it."""
        return system_clock_ms()

    def problems(self) -> list[str]:
        """Return the problems of the node, a line each; none when it is healthy."""
        lines: list[str] = self._ask(self._coordinator.problems.remote())
        return lines

    # Topics

    def create_topic(
        self,
        topic: str,
        queues: int = 4,
        retention: RetentionPolicy = KEEP_ALL,
        *,
        internal: bool = False,
        queues_per_process: QueuesPerProcess = None,
        on_progress: Callable[[TopicProgress], None] | None = None,
    ) -> TopicConfig:
        """Create a topic unless it exists; an existing one keeps its queues and its retention.

        An *internal* topic is one of an app itself, which patterns and lists leave out. Up to
        *queues_per_process* queues share a process, ``"shared"`` with those of other topics, which
        suits topics with few messages; None leaves that to the node. Returns when all its shards answer, whichever caller creates it; *on_progress*
        gets the progress. The call can be repeated: missing shards are started.
        """
        existing = self.topics().get(topic)
        queues = existing.queues if existing else queues
        call = self._coordinator.create_topic.remote(
            topic, queues, retention, internal=internal, queues_per_process=queues_per_process
        )
        return self._start_queues(self._ask(call), on_progress, is_new=existing is None)

    def alter_topic(
        self, topic: str, queues: int, on_progress: Callable[[TopicProgress], None] | None = None
    ) -> TopicConfig:
        """Create a topic, or give it more queues; see :meth:`create_topic`."""
        is_new = topic not in self.topics()
        call = self._coordinator.create_topic.remote(topic, queues)
        return self._start_queues(self._ask(call), on_progress, is_new=is_new)

    def set_retention(self, topic: str, retention: RetentionPolicy) -> TopicConfig:
        """Set how long, or up to how many bytes a queue, a topic's messages are kept."""
        changed: TopicConfig = self._ask(self._coordinator.set_retention.remote(topic, retention))
        return changed

    def set_permission(self, topic: str, perm: int) -> TopicConfig:
        """Allow writing (2), reading (4) or both (6)."""
        changed: TopicConfig = self._ask(self._coordinator.set_permission.remote(topic, perm))
        return changed

    def set_bitmaps(self, topic: str, mode: str) -> TopicConfig:
        """Keep filter bitmaps for SQL92 groups: ``on``, ``off``, or ``auto``, where that pays."""
        changed: TopicConfig = self._ask(self._coordinator.set_bitmaps.remote(topic, mode))
        return changed

    def delete_topic(self, topic: str) -> None:
        """Remove a topic and all its messages."""
        self._ask(self._coordinator.delete_topic.remote(topic))

    def topics(self) -> dict[str, TopicConfig]:
        """Return all topics."""
        topics: dict[str, TopicConfig] = self._ask(self._coordinator.topics.remote())
        return topics

    def topic(self, name: str) -> TopicConfig:
        """Return a topic; raise :class:`TopicNotFoundError`."""
        topic: TopicConfig = self._ask(self._coordinator.topic.remote(name))
        return topic

    def shard_statistics(self, topic: str) -> list[ShardStatistics]:
        """Return the counters of a topic's shards, by queue."""
        found: list[ShardStatistics] = self._on_all(topic, "statistics")
        return found

    # Groups

    def groups(self) -> list[GroupDescription]:
        """Return all groups, an entry for each topic."""
        groups: list[GroupDescription] = self._ask(self._coordinator.groups.remote())
        return groups

    def lag(self, group: GroupDescription) -> dict[int, FilteredLag]:
        """Return the group's lag in each queue of its topic."""
        answers: list[FilteredLag] = self._ask(
            self._actor(FILTER_NAME).lag.remote(lag_questions(group))
        )
        return dict(zip(group.offsets, answers, strict=True))

    def journal(self, group: str) -> tuple[JournalEntry, ...]:
        """Return the known events of a group's offsets and filters, oldest first."""
        entries: tuple[JournalEntry, ...] = self._ask(self._coordinator.journal.remote(group))
        return entries

    def delete_group(self, group: str) -> None:
        """Remove a group that has no members."""
        self._ask(self._coordinator.delete_group.remote(group))

    def ask_groups(self, question: GroupQuestion, *arguments: Any) -> Any:
        """Call ``GroupAdministration`` (groups/group_administration.py)."""
        return self._ask(self._coordinator.ask_groups.remote(question, *arguments))

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Report for a member."""
        reply: HeartbeatReply = self._ask(self._coordinator.heartbeat.remote(beat))
        return reply

    def leave(self, beat: Heartbeat) -> None:
        """Leave for a member."""
        self._ask(self._coordinator.leave.remote(beat))

    def filter_statistics(self) -> FilterStatistics:
        """Return the counters of the node's filter actor."""
        found: FilterStatistics = self._ask(self._actor(FILTER_NAME).statistics.remote())
        return found

    def attach_stream(self, path: str) -> None:
        """Have the filter actor fill a match ring."""
        self._ask(self._actor(FILTER_NAME).attach.remote(path))

    # Messages

    def producer(self, **options: Unpack[ProducerOptions]) -> Producer:
        """Return a new producer, which is closed with the connection; see ProducerOptions."""
        producer = Producer(self, **options)
        self.keep(producer)
        return producer

    def consumer(
        self,
        group: str,
        topic: str,
        subscription: Subscription,
        **options: Unpack[MemberOptions],
    ) -> Member:
        """Return a new member of *group*; see :class:`MemberOptions`.

        On another node than the shards', it reads through the node's gateway.
        """
        check_member(group, topic, subscription, options)
        if self.is_local(topic, 0):
            return GroupConsumer(self, group, topic, subscription, **options)
        self._ask(self._coordinator.open_gateway.remote())
        return RemoteGroupConsumer(GatewayCalls(self._ask), group, topic, subscription, **options)

    def queue_tail(self, topic: str, queue_id: int) -> QueueTail:
        """Return a reader of one queue, without a group."""
        return QueueTail(self.data, topic, queue_id)

    def gate(self, topic: str, queue_id: int) -> _Gate:
        """Return the calls of a shard."""
        found = self._gates.get((topic, queue_id))
        if found is None:
            calls = ShardCalls(self.topic(topic), queue_id)
            found = self._gates[topic, queue_id] = _Gate(calls, self._ask)
        return found

    def is_local(self, topic: str, queue_id: int) -> bool:  # noqa: ARG002 - one node has all
        """Return whether the shard's memory is reachable: this process is on the node's machine."""
        here = str(ray.get_runtime_context().get_node_id())
        there: str = self._ask(self._coordinator.node_id.remote())
        return here == there

    def view(self, offset_message_id: str) -> StoredMessage | None:
        """Return the message with that offset id, its own or that before its import, or None.

        An id that names none of the cluster's shards is looked up in all of them.
        """
        return find_by_offset_id(self, offset_message_id)

    def view_at(self, topic: str, queue_id: int, physical_offset: int) -> StoredMessage | None:
        """Return the message at a physical offset of a shard, or None if none begins there."""
        shard = ShardCalls(self.topic(topic), queue_id)
        found: StoredMessage | None = self._ask(shard.ask("view", physical_offset))
        return found

    def message_at(self, topic: str, queue_id: int, queue_offset: int) -> StoredMessage | None:
        """Return the message at a queue offset, or None."""
        shard = ShardCalls(self.topic(topic), queue_id)
        found: StoredMessage | None = self._ask(shard.ask("message_at", queue_offset))
        return found

    def offset_at_time(self, topic: str, queue_id: int, time_ms: int) -> int:
        """Return the queue offset of the first message stored then or later, else the end."""
        shard = ShardCalls(self.topic(topic), queue_id)
        offset: int = self._ask(shard.ask("offset_at_time", time_ms))
        return offset

    def query(
        self,
        topic: str,
        key: str,
        max_count: int = 64,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
    ) -> list[StoredMessage]:
        """Return the topic's messages with a business key or unique key, oldest first."""
        if not key:
            raise InvalidMessageError("the key to look up is empty")
        answers = self._on_all(topic, "query", key, max_count, begin_ms, end_ms)
        return merge(answers, max_count)

    def query_by_time(
        self, topic: str, begin_ms: int, end_ms: int, max_count: int = 64
    ) -> list[StoredMessage]:
        """Return the messages stored from *begin_ms* to *end_ms* inclusive, oldest first."""
        answers = self._on_all(topic, "query_by_time", begin_ms, end_ms, max_count)
        return merge(answers, max_count)

    def explain(self, message: str, group: str, topic: str | None = None) -> Explanation:
        """Explain why the message with id or key *message* was, or was not, delivered to *group*.

        Changes nothing. A key is looked up in *topic*, else in the topics of the group.
        """
        return inquire(self, self.groups(), message, group, topic)

    def stored_facts(self, message: StoredMessage) -> StoredFacts:
        """Return the facts that the message's shard has about it."""
        shard = ShardCalls(self.topic(message.topic), message.queue_id)
        facts: StoredFacts = self._ask(shard.ask("facts", message))
        return facts

    def ask_predicate(self, subscription: Subscription, message: StoredMessage) -> bool:
        """Evaluate a class filter on a stored message, in the filter actor."""
        place = message.topic, message.queue_id, message.queue_offset
        answer: bool = self._ask(self._actor(FILTER_NAME).ask_predicate.remote(subscription, place))
        return answer

    def recall(self, handle: str) -> bool:
        """Recall a delayed message; False if it was delivered or recalled before.

        Raises:
            InvalidMessageError: *handle* is not a handle, or not one of this node's.
        """
        RecallHandle.parse(handle)
        recalled: bool = self._ask(self._actor(SHARED_NAME).recall.remote(handle))
        return recalled

    def is_waiting(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether the delayed message there is neither delivered nor recalled."""
        host = self._actor(SHARED_NAME)
        waiting: bool = self._ask(host.is_waiting.remote(topic, queue_id, queue_offset))
        return waiting

    def transaction_checks(self, group: str) -> list[StoredMessage]:
        """Return the half messages whose outcome a producer of *group* has to check."""
        asked: list[StoredMessage] = self._ask(
            self._actor(SHARED_NAME).transaction_checks.remote(group)
        )
        return asked

    def decide_transaction(self, wanted: Decision, *, to_disk: bool) -> Verdict:
        """Record a decision unless there is an earlier one; return the one that counts."""
        call = self._actor(SHARED_NAME).decide_transaction
        verdict: Verdict = self._ask(call.remote(wanted, to_disk=to_disk))
        return verdict

    def transactions(self, most: int) -> TransactionOverview:
        """Return the undecided transactions, the oldest *most* of them."""
        if HALF_TOPIC not in self.topics():  # no transaction was ever begun
            return TransactionOverview()
        found: TransactionOverview = self._ask(self._actor(SHARED_NAME).transactions.remote(most))
        return found

    def close(self) -> None:
        """Close the producers created here."""
        for producer in self._producers:
            producer.close()
        self._producers.clear()

    def __enter__(self) -> Self:
        """Return the connection itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _start_queues(
        self,
        topic: TopicConfig,
        on_progress: Callable[[TopicProgress], None] | None,
        *,
        is_new: bool,
    ) -> TopicConfig:
        def start(queues: range) -> Started:
            call = self._coordinator.start_queues
            started: Started = self._ask(call.remote(topic.name, topic.topic_id, queues, STEP_S))
            return started

        closed = QueueStarter(topic, start, on_progress).run()
        if is_new and closed:
            raise next(iter(closed.values()))
        return topic

    def _on_all(self, topic: str, question: Question, *arguments: Any) -> list[Any]:
        asked = [shard.ask(question, *arguments) for shard in shards_of(self.topic(topic))]
        return [self._ask(reference) for reference in asked]

    def _actor(self, name: str) -> Any:
        if self._left is not None:
            raise self._left
        return find_actor(name)

    def _answer(self, reference: Any) -> Any:
        """Wait for a result while the node's process lives: without it Ray may never answer."""
        end = time.monotonic() + CALL_TIMEOUT_S
        while True:
            if self._left is not None:
                raise self._left
            try:
                return ray.get(reference, timeout=min(_LOOK_S, max(0, end - time.monotonic())))
            except GetTimeoutError:
                if self.node and whereabouts(self.node) != "here":
                    raise NodeNotRunningError(
                        f"the node on {self.data} has ended; it did not answer before; start it "
                        f"again with: rocketray start --data {self.data}"
                    ) from None
                if time.monotonic() >= end:
                    raise

    def _ask(self, reference: Any) -> Any:
        """Return the result of a call; our own errors are raised as they were raised there."""
        try:
            return self._answer(reference)
        except RayTaskError as error:
            raise raised_there(error, self.data) from None
        except RayError as error:  # an actor or its result is unavailable, or it times out
            raise ShardUnavailableError("or coordinator", RETRY_AFTER_MS, str(error)) from error


class _Left:
    """The coordinator's replacement when the node's Ray is lost."""

    def __init__(self, error: StreamError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


class _Gate:
    """The calls of one shard."""

    def __init__(self, calls: ShardCalls, ask: Callable[[Any], Any]) -> None:
        self._calls = calls
        self._ask = ask

    def attach(self, path: str) -> None:
        self._ask(self._calls.ask("attach", path))

    def append(self, payload: bytes, durability: int, *, attempt: int = 0) -> Ack:
        call = self._calls.append(payload, durability, attempt=attempt, wait_s=CALL_TIMEOUT_S)
        ack: Ack = self._ask(call)
        return ack
