"""A node in this process: real shards, filter engine, groups and queries, and no Ray.

It has the calls that producers, members, apps and programs need of a connection. It has no threads
of its own: a subclass steps the shards and the filter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

from rocketray.actors.calls.endpoint import InProcess, ServedObjects
from rocketray.actors.client.lookup import find_by_offset_id, merge
from rocketray.actors.client.node_client import NodeClient
from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.actors.cluster.system_services import SystemServices
from rocketray.actors.cluster.topic_service import TopicService
from rocketray.actors.explaining.explanation import Explanation
from rocketray.actors.explaining.inquiry import inquire
from rocketray.actors.files.runtime_lock import remove_runtime
from rocketray.actors.filtering.bitmap_orders import Answer, BitmapOrder
from rocketray.actors.filtering.engine import FilterEngine
from rocketray.actors.filtering.filter_api import FILTERS, FilterApi
from rocketray.actors.filtering.filter_rules import FilterRules
from rocketray.actors.groups.groups_api import GROUPS, SESSIONS
from rocketray.actors.producers.queue_link import ShardGate
from rocketray.actors.shards.owned_shard import OwnedShard
from rocketray.actors.shards.shard_process import ShardProcess
from rocketray.actors.shards.shard_writer import ShardStatistics
from rocketray.actors.shards.stored_facts import StoredFacts
from rocketray.actors.topics.catalog import SHARED_PROCESS, TopicConfig
from rocketray.actors.topics.queue_tail import QueueTail
from rocketray.actors.topics.topic_start import Started
from rocketray.actors.topics.topics_api import TOPICS
from rocketray.actors.transactions.transaction_state import TransactionOverview
from rocketray.message import StoredMessage
from rocketray.store.retention import DiskUse, ExpiredFile
from rocketray.transaction import Decision, Verdict

__all__ = ["EMPTY_DISK", "LocalNode"]

EMPTY_DISK = DiskUse(0, 1 << 40)


class LocalNode(NodeClient):
    """The parts of a node over one data directory, and a client of it."""

    def __init__(
        self,
        data: Path,
        sizes: Mapping[str, int],
        clock_ms: Callable[[], int],
        rules: FilterRules,
        steady_ms: Callable[[], int] | None = None,
    ) -> None:
        """Take *sizes*: fields of :class:`~rocketray.config.StoreConfig` for new shards."""
        served = ServedObjects()
        super().__init__(data, InProcess(served))
        self.sizes = sizes
        self.clock_ms = clock_ms
        self.rules = rules
        self.disk = EMPTY_DISK
        self.processes: dict[str, ShardProcess] = {}
        """The shard processes of the node, all in this one; opened when a topic needs them."""
        self._starting = threading.Lock()  # of processes
        self._steady_ms = steady_ms
        self.load_state()
        self.filter = FilterEngine(data, rules)
        served.serve(SESSIONS, lambda: self.state)
        served.serve(GROUPS, lambda: self.state.administration)
        served.serve(TOPICS, lambda: self.topic_service)
        served.serve(FILTERS, self.filter_calls)
        self.topic_service.start_all()

    def load_state(self) -> None:
        """Load the coordinator's state from disk, as a coordinator does that starts."""
        self.state = ClusterState(self.data, self.rules, self.clock_ms, self._steady_ms)
        self.topic_service = TopicService(self.state, _LocalShards(self))

    def problems(self) -> list[str]:
        """Return the node's problems, a line each; none if all is well."""
        self.topic_service.note_closed()
        return self.state.problems.lines()

    # Topics

    def create_topic(self, topic: str, queues: int = 1) -> TopicConfig:
        """Create a topic unless it exists; producers call it."""
        return self.topics.ensure(topic, queues)

    def topic(self, name: str) -> TopicConfig:
        """Return a topic; raise :class:`TopicNotFoundError`."""
        return self.topics.get(name)

    def expire(self, disk: DiskUse | None = None) -> list[ExpiredFile]:
        """Have every shard remove files beyond its topic's retention that no group needs.

        *disk* sets for this call how full the disk is.
        """
        return [
            file
            for order in self.state.expiry_orders()
            for file in self.shard(order.topic.name, order.queue_id).writer.expire(
                order.policy, order.needed_from, disk or self.disk
            )
        ]

    def shard_statistics(self, topic: str) -> list[ShardStatistics]:
        """Return the counters of a topic's shards, by queue."""
        return [shard.statistics() for shard in self.shards_of(topic)]

    def filter_calls(self) -> FilterApi:
        """Return the object behind the calls of the filter actor."""
        return self.filter

    # Messages

    def gate(self, topic: str, queue_id: int) -> ShardGate:
        """Return the calls of a shard."""
        raise NotImplementedError

    def is_local(self, topic: str, queue_id: int) -> bool:
        """Return whether producers share memory with the shard."""
        raise NotImplementedError

    def shard(self, topic: str, queue_id: int) -> OwnedShard:
        """Return a shard."""
        return self._process(self.topic(topic).process_of(queue_id)).shard(topic, queue_id)

    @cached_property
    def services(self) -> SystemServices:
        """The system services; created when they are first needed."""
        process = self._process(SHARED_PROCESS)
        return SystemServices(process, lambda: self, clock_ms=self.clock_ms)

    def view(self, offset_message_id: str) -> StoredMessage | None:
        """Return the message with that offset id, or None."""
        return find_by_offset_id(self, offset_message_id)

    def view_at(self, topic: str, queue_id: int, physical_offset: int) -> StoredMessage | None:
        """Return the message at a place in a shard's log, or None if none begins there."""
        return self.shard(topic, queue_id).view(physical_offset)

    def message_at(self, topic: str, queue_id: int, queue_offset: int) -> StoredMessage | None:
        """Return the message at a queue offset, or None."""
        return self.shard(topic, queue_id).message_at(queue_offset)

    def offset_at_time(self, topic: str, queue_id: int, time_ms: int) -> int:
        """Return the offset of the first message stored at that time or later, else the end."""
        return self.shard(topic, queue_id).offset_at_time(time_ms)

    def query(
        self,
        topic: str,
        key: str,
        max_count: int = 64,
        begin_ms: int = 0,
        end_ms: int = 2**63 - 1,
    ) -> list[StoredMessage]:
        """Return the topic's messages with a business key or unique key, oldest first."""
        answers = [shard.query(key, max_count, begin_ms, end_ms) for shard in self.shards_of(topic)]
        return merge(answers, max_count)

    def query_by_time(
        self, topic: str, begin_ms: int, end_ms: int, max_count: int = 64
    ) -> list[StoredMessage]:
        """Return the messages stored from *begin_ms* to *end_ms*, inclusive, oldest first."""
        answers = [
            shard.query_by_time(begin_ms, end_ms, max_count) for shard in self.shards_of(topic)
        ]
        return merge(answers, max_count)

    def messages(self, topic: str) -> list[StoredMessage]:
        """Return all stored messages of a topic, queue by queue, in order within each."""
        return [
            message
            for shard in self.shards_of(topic)
            for message in shard.writer.store.reads.scan()
        ]

    def explain(self, message: str, group: str, topic: str | None = None) -> Explanation:
        """Explain why the message with that id or key was, or was not, delivered to *group*."""
        return inquire(self, self.groups.all(), message, group, topic)

    def stored_facts(self, message: StoredMessage) -> StoredFacts:
        """Return the facts of the message's shard on it."""
        return self.shard(message.topic, message.queue_id).facts(message)

    def transaction_checks(self, group: str) -> list[StoredMessage]:
        """Return the messages for which a producer of *group* is asked to decide."""
        return self.services.transactions.checks(group)

    def decide_transaction(self, wanted: Decision, *, to_disk: bool) -> Verdict:
        """Store a decision, unless there is an earlier one; return the one that counts."""
        return self.services.transactions.decide(wanted, to_disk=to_disk)

    def transactions(self, most: int) -> TransactionOverview:
        """Return the undecided transactions."""
        return self.services.transactions.overview(most)

    def recall(self, handle: str) -> bool:
        """Recall a delayed message; see :meth:`DelayService.recall`."""
        return self.services.schedule.recall(handle)

    def is_waiting(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a delayed message still waits: it is neither delivered nor recalled."""
        return self.services.schedule.is_waiting(topic, queue_id, queue_offset)

    def queue_tail(self, topic: str, queue_id: int) -> QueueTail:
        """Return a reader of one queue, without a group."""
        return QueueTail(self.data, topic, queue_id)

    def close(self) -> None:
        """Bring everything to disk and release the directory."""
        self.state.save()
        self.filter.close()
        if "services" in vars(self):
            self.services.close()
        for process in self.processes.values():
            process.close()
        remove_runtime(self.data)

    def __enter__(self) -> Self:
        """Return the node itself; closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def shards_of(self, topic: str) -> list[OwnedShard]:
        """Return the shards of a topic, by queue."""
        return [self.shard(topic, queue_id) for queue_id in range(self.topic(topic).queues)]

    def open_shards(self, topic: TopicConfig, queues: range) -> None:
        """Open the shards of queues of a topic; leave those alone that are open."""
        for name, queue_ids in topic.by_process(queues).items():
            closed = self._process(name).open(topic, queue_ids).closed
            if closed:
                raise next(iter(closed.values()))

    def end_process(self, name: str) -> None:
        """Close a shard process with all its shards."""
        self.processes.pop(name).close()

    def _process(self, name: str) -> ShardProcess:
        with self._starting:
            if name not in self.processes:
                self.processes[name] = self._start_process(name)
            return self.processes[name]

    def _start_process(self, name: str) -> ShardProcess:
        return ShardProcess(self.data, name, self.sizes, clock_ms=self.clock_ms)


class _LocalShards:
    """The shards of a :class:`LocalNode`, for its topics."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node

    def start(
        self,
        topics: list[TopicConfig],
        queues: range | None,
        wait_s: float | None,  # noqa: ARG002 - of the protocol
    ) -> Started:
        began: list[str] = []
        for topic in topics:
            wanted = range(topic.queues) if queues is None else queues
            missing = [queue_id for queue_id in wanted if not self._is_open(topic, queue_id)]
            if missing:
                self._node.open_shards(topic, wanted)
            began += [f"{topic.name}/{queue_id}" for queue_id in missing]
        return Started({}, (), tuple(began))

    def remove(self, topic: TopicConfig) -> None:
        for name in topic.by_process():
            process = self._node.processes.get(name)
            if process is not None:
                process.remove(topic.name)
                if name != SHARED_PROCESS:
                    self._node.end_process(name)

    def closed(self, topics: Iterable[TopicConfig]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for topic in topics:
            for name, queue_ids in topic.by_process().items():
                if process := self._node.processes.get(name):
                    closed = process.closed()
                    places = [f"{topic.name}/{queue_id}" for queue_id in queue_ids]
                    found |= {place: closed.get(place) for place in places}
        return found

    def set_writable(self, topic: TopicConfig) -> None:
        for shard in self._node.shards_of(topic.name):
            shard.set_writable(topic.writable)

    def keep_bitmaps(self, orders: Sequence[BitmapOrder]) -> list[list[Answer] | None]:
        return [
            [shard.keep_bitmaps(order.living) for shard in self._node.shards_of(order.topic.name)]
            for order in orders
        ]

    def _is_open(self, topic: TopicConfig, queue_id: int) -> bool:
        process = self._node.processes.get(topic.process_of(queue_id))
        return process is not None and process.find(topic.name, queue_id) is not None
