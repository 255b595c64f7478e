"""A connection to a running node: the calls of its clients, over Ray and shared memory.

A connection finds the node by its data directory (DATA/node.json), and joins its Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, Unpack
from weakref import WeakSet

from rocketray.actors.calls.endpoint import COORDINATOR_NAME, client_of
from rocketray.actors.consumers.member import GroupConsumer
from rocketray.actors.explaining.explanation import Explanation
from rocketray.actors.explaining.inquiry import inquire
from rocketray.actors.files.home import Home
from rocketray.actors.groups.member_options import MemberOptions, check_member
from rocketray.actors.ipc.ring import Ack
from rocketray.actors.producers.producer import Producer
from rocketray.actors.producers.producer_options import ProducerOptions
from rocketray.actors.ray_process.ray_runtime import join_ray, pinned, ray
from rocketray.actors.remote.fetch_api import GATEWAY
from rocketray.actors.remote.fetched_streams import FetchedStreams
from rocketray.actors.runtime.clock import system_clock_ms
from rocketray.actors.shards.owned_shard import Question
from rocketray.actors.shards.shard_writer import ShardStatistics
from rocketray.actors.shards.stored_facts import StoredFacts
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.actors.topics.queue_tail import QueueTail
from rocketray.actors.transactions.transaction_state import TransactionOverview
from rocketray.data_directory import data_directory
from rocketray.errors import InvalidMessageError, StreamError
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage
from rocketray.recall import RecallHandle
from rocketray.transaction import HALF_TOPIC, Decision, Verdict

from .actor_names import SHARED_NAME, find_actor
from .finding import find_node
from .lookup import find_by_offset_id, merge
from .node_api import NODE
from .node_client import NodeClient
from .ray_transport import CALL_TIMEOUT_S, RayTransport
from .shard_calls import ShardCalls, shards_of

__all__ = ["Connection", "lose_node", "node_placement"]

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


class Connection(NodeClient):
    """A process's link to one node, created by :meth:`open`; safe to use from several threads."""

    def __init__(self, data: Path, node: Mapping[str, Any] | None = None) -> None:
        """Connect to the node of the Ray that is joined; *node* is the content of node.json."""
        self._transport = RayTransport(data, node)
        super().__init__(data, self._transport)
        self.node = node
        self._node = client_of(self._transport, NODE)
        self._producers: list[Producer] = []
        self._gates: dict[tuple[str, int], _Gate] = {}
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
        self._transport.lose(error)
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
        return self._node.problems()

    # Topics

    def create_topic(self, topic: str, queues: int = 1) -> TopicConfig:
        """Create a topic unless it exists; producers call it."""
        return self.topics.ensure(topic, queues)

    def topic(self, name: str) -> TopicConfig:
        """Return a topic; raise :class:`TopicNotFoundError`."""
        return self.topics.get(name)

    def shard_statistics(self, topic: str) -> list[ShardStatistics]:
        """Return the counters of a topic's shards, by queue."""
        found: list[ShardStatistics] = self._on_all(topic, "statistics")
        return found

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
    ) -> GroupConsumer:
        """Return a new member of *group*; see :class:`MemberOptions`.

        On another node than the shards', it fetches from the node's gateway.
        """
        check_member(group, topic, subscription, options)
        if self.is_local(topic, 0):
            return GroupConsumer(self, group, topic, subscription, **options)
        self._node.open_gateway()
        streams = FetchedStreams(client_of(self._transport, GATEWAY), group, topic)
        return GroupConsumer(self, group, topic, subscription, streams=streams, **options)

    def queue_tail(self, topic: str, queue_id: int) -> QueueTail:
        """Return a reader of one queue, without a group."""
        return QueueTail(self.data, topic, queue_id)

    def gate(self, topic: str, queue_id: int) -> _Gate:
        """Return the calls of a shard."""
        found = self._gates.get((topic, queue_id))
        if found is None:
            calls = ShardCalls(self.topic(topic), queue_id)
            found = self._gates[topic, queue_id] = _Gate(calls, self._transport.result)
        return found

    def is_local(self, topic: str, queue_id: int) -> bool:  # noqa: ARG002 - one node has all
        """Return whether the shard's memory is reachable: this process is on the node's machine."""
        here = str(ray.get_runtime_context().get_node_id())
        return here == self._node.node_id()

    def view(self, offset_message_id: str) -> StoredMessage | None:
        """Return the message with that offset id, its own or that before its import, or None.

        An id that names none of the cluster's shards is looked up in all of them.
        """
        return find_by_offset_id(self, offset_message_id)

    def view_at(self, topic: str, queue_id: int, physical_offset: int) -> StoredMessage | None:
        """Return the message at a physical offset of a shard, or None if none begins there."""
        shard = ShardCalls(self.topic(topic), queue_id)
        found: StoredMessage | None = self._transport.result(shard.ask("view", physical_offset))
        return found

    def message_at(self, topic: str, queue_id: int, queue_offset: int) -> StoredMessage | None:
        """Return the message at a queue offset, or None."""
        shard = ShardCalls(self.topic(topic), queue_id)
        found: StoredMessage | None = self._transport.result(shard.ask("message_at", queue_offset))
        return found

    def offset_at_time(self, topic: str, queue_id: int, time_ms: int) -> int:
        """Return the queue offset of the first message stored then or later, else the end."""
        shard = ShardCalls(self.topic(topic), queue_id)
        offset: int = self._transport.result(shard.ask("offset_at_time", time_ms))
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
        return inquire(self, self.groups.all(), message, group, topic)

    def stored_facts(self, message: StoredMessage) -> StoredFacts:
        """Return the facts that the message's shard has about it."""
        shard = ShardCalls(self.topic(message.topic), message.queue_id)
        facts: StoredFacts = self._transport.result(shard.ask("facts", message))
        return facts

    def recall(self, handle: str) -> bool:
        """Recall a delayed message; False if it was delivered or recalled before.

        Raises:
            InvalidMessageError: *handle* is not a handle, or not one of this node's.
        """
        RecallHandle.parse(handle)
        recalled: bool = self._transport.result(
            self._transport.actor(SHARED_NAME).recall.remote(handle)
        )
        return recalled

    def is_waiting(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether the delayed message there is neither delivered nor recalled."""
        host = self._transport.actor(SHARED_NAME)
        waiting: bool = self._transport.result(
            host.is_waiting.remote(topic, queue_id, queue_offset)
        )
        return waiting

    def transaction_checks(self, group: str) -> list[StoredMessage]:
        """Return the half messages whose outcome a producer of *group* has to check."""
        asked: list[StoredMessage] = self._transport.result(
            self._transport.actor(SHARED_NAME).transaction_checks.remote(group)
        )
        return asked

    def decide_transaction(self, wanted: Decision, *, to_disk: bool) -> Verdict:
        """Record a decision unless there is an earlier one; return the one that counts."""
        call = self._transport.actor(SHARED_NAME).decide_transaction
        verdict: Verdict = self._transport.result(call.remote(wanted, to_disk=to_disk))
        return verdict

    def transactions(self, most: int) -> TransactionOverview:
        """Return the undecided transactions, the oldest *most* of them."""
        if HALF_TOPIC not in self.topics.all():  # no transaction was ever begun
            return TransactionOverview()
        found: TransactionOverview = self._transport.result(
            self._transport.actor(SHARED_NAME).transactions.remote(most)
        )
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

    def _on_all(self, topic: str, question: Question, *arguments: Any) -> list[Any]:
        asked = [shard.ask(question, *arguments) for shard in shards_of(self.topic(topic))]
        return [self._transport.result(reference) for reference in asked]


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
