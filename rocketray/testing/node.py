"""A node in this process: real shards, filter engine, groups and queries, and no Ray.

It has the calls that producers, members, apps and programs need of a connection. It has no threads
of its own: a subclass steps the shards and the filter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from rocketray.actors.client.lookup import find_by_offset_id, merge
from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.actors.cluster.system_services import SystemServices
from rocketray.actors.explaining.explanation import Explanation
from rocketray.actors.explaining.inquiry import inquire
from rocketray.actors.files.runtime_lock import remove_runtime
from rocketray.actors.filtering.engine import FilterEngine
from rocketray.actors.filtering.filter_rules import FilterRules
from rocketray.actors.filtering.lag import FilteredLag, LagCounter, lag_questions
from rocketray.actors.groups.group_administration import GroupQuestion
from rocketray.actors.groups.group_descriptions import GroupDescription
from rocketray.actors.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.actors.journal.group_journal import JournalEntry
from rocketray.actors.producers.queue_link import ShardGate
from rocketray.actors.shards.owned_shard import OwnedShard
from rocketray.actors.shards.shard_process import ShardProcess
from rocketray.actors.shards.shard_writer import ShardStatistics
from rocketray.actors.shards.stored_facts import StoredFacts
from rocketray.actors.topics.catalog import SHARED_PROCESS, TopicConfig
from rocketray.actors.topics.queue_tail import QueueTail
from rocketray.actors.topics.topic_start import TopicProgress
from rocketray.actors.transactions.transaction_state import TransactionOverview
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage
from rocketray.names import QueuesPerProcess
from rocketray.store.retention import KEEP_ALL, DiskUse, ExpiredFile, RetentionPolicy
from rocketray.transaction import Decision, Verdict

__all__ = ["EMPTY_DISK", "LocalNode"]

EMPTY_DISK = DiskUse(0, 1 << 40)


class LocalNode:
    """The parts of a node over one data directory."""

    def __init__(
        self,
        data: Path,
        sizes: Mapping[str, int],
        clock_ms: Callable[[], int],
        rules: FilterRules,
        steady_ms: Callable[[], int] | None = None,
    ) -> None:
        """Take *sizes*: fields of :class:`~rocketray.config.StoreConfig` for new shards."""
        self.data = data
        self.sizes = sizes
        self.clock_ms = clock_ms
        self.rules = rules
        self.disk = EMPTY_DISK
        self.processes: dict[str, ShardProcess] = {}
        """The shard processes of the node, all in this one; opened when a topic needs them."""
        self.state = ClusterState(data, rules, clock_ms, steady_ms)
        self.filter = FilterEngine(data, rules)
        self._lag = LagCounter(data)
        self._starting = threading.Lock()  # of processes
        self._opening = threading.Lock()  # a topic that is returned has its shards
        for deleted in self.state.deleted_topics():
            self.state.remove_files(deleted)
        for topic in self.topics().values():
            self._open(topic)

    def problems(self) -> list[str]:
        """Return the node's problems, a line each; none if all is well."""
        return self.state.problems.lines()

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

        Queues that are missing, because an earlier call failed half-way, are opened.
        """
        with self._opening:
            existing = self.topics().get(topic)
            made = existing or self.state.create_topic(
                topic,
                queues,
                retention,
                internal=internal,
                queues_per_process=queues_per_process,
            )
            missing = self._missing(made)
            if missing or existing is None:
                self._open(made)
            _report(made, missing, on_progress)
            return made

    def alter_topic(
        self, topic: str, queues: int, on_progress: Callable[[TopicProgress], None] | None = None
    ) -> TopicConfig:
        """Create a topic, or give it more queues."""
        with self._opening:
            altered = self.state.create_topic(topic, queues)
            missing = self._missing(altered)
            self._open(altered)
            _report(altered, missing, on_progress)
            return altered

    def set_retention(self, topic: str, retention: RetentionPolicy) -> TopicConfig:
        """Set a topic's retention, by time or by bytes per queue."""
        return self.state.set_retention(topic, retention)

    def set_permission(self, topic: str, perm: int) -> TopicConfig:
        """Allow writing (2), reading (4) or both (6)."""
        changed = self.state.set_permission(topic, perm)
        for shard in self._shards_of(topic):
            shard.set_writable(changed.writable)
        return changed

    def set_bitmaps(self, topic: str, mode: str) -> TopicConfig:
        """Keep filter bitmaps for SQL92 groups: ``on``, ``off``, or ``auto``, if that pays off."""
        changed = self.state.set_bitmaps(topic, mode)
        self.order_bitmaps()
        return changed

    def order_bitmaps(self) -> None:
        """Order shards to keep groups' filter bitmaps, as a node does periodically."""
        for order in self.state.bitmap_orders():
            shards = self._shards_of(order.topic.name)
            answers = [shard.keep_bitmaps(order.living) for shard in shards]
            self.state.take_bitmaps(order, answers)

    def delete_topic(self, topic: str) -> None:
        """Remove a topic and all its messages."""
        deleted = self.state.delete_topic(topic)
        for process in deleted.by_process():
            self._process(process).remove(topic)
            if process != SHARED_PROCESS:
                self._end_process(process)
        self.state.remove_files(deleted)

    def topics(self) -> dict[str, TopicConfig]:
        """Return all topics."""
        return self.state.topics()

    def topic(self, name: str) -> TopicConfig:
        """Return a topic; raise :class:`TopicNotFoundError`."""
        return self.state.topic(name)

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
        return [shard.statistics() for shard in self._shards_of(topic)]

    # Groups

    def groups(self) -> list[GroupDescription]:
        """Return all groups, an entry for each topic."""
        return self.state.groups()

    def lag(self, group: GroupDescription) -> dict[int, FilteredLag]:
        """Return the lag of *group* in each queue of its topic."""
        return dict(zip(group.offsets, self._lag.answer(lag_questions(group)), strict=True))

    def journal(self, group: str) -> tuple[JournalEntry, ...]:
        """Return the known changes of a group's offsets and filters, oldest first."""
        return self.state.journal(group)

    def delete_group(self, group: str) -> None:
        """Delete a group that has no members."""
        self.state.delete_group(group)

    def ask_groups(self, question: GroupQuestion, *arguments: Any) -> Any:
        """See :class:`~rocketray.actors.groups.group_administration.GroupAdministration`."""
        return self.state.ask_groups(question, *arguments)

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Report for a member."""
        return self.state.heartbeat(beat)

    def leave(self, beat: Heartbeat) -> None:
        """Leave for a member."""
        self.state.leave(beat)

    def attach_stream(self, path: str) -> None:
        """Let the filter fill a match ring."""
        self.filter.attach(Path(path))

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
        answers = [
            shard.query(key, max_count, begin_ms, end_ms) for shard in self._shards_of(topic)
        ]
        return merge(answers, max_count)

    def query_by_time(
        self, topic: str, begin_ms: int, end_ms: int, max_count: int = 64
    ) -> list[StoredMessage]:
        """Return the messages stored from *begin_ms* to *end_ms*, inclusive, oldest first."""
        answers = [
            shard.query_by_time(begin_ms, end_ms, max_count) for shard in self._shards_of(topic)
        ]
        return merge(answers, max_count)

    def messages(self, topic: str) -> list[StoredMessage]:
        """Return all stored messages of a topic, queue by queue, in order within each."""
        return [
            message
            for shard in self._shards_of(topic)
            for message in shard.writer.store.reads.scan()
        ]

    def explain(self, message: str, group: str, topic: str | None = None) -> Explanation:
        """Explain why the message with that id or key was, or was not, delivered to *group*."""
        return inquire(self, self.groups(), message, group, topic)

    def stored_facts(self, message: StoredMessage) -> StoredFacts:
        """Return the facts of the message's shard on it."""
        return self.shard(message.topic, message.queue_id).facts(message)

    def ask_predicate(self, subscription: Subscription, message: StoredMessage) -> bool:
        """Return the result of a class filter for a stored message."""
        place = message.topic, message.queue_id, message.queue_offset
        return self.filter.ask_predicate(subscription, place)

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
        """Recall a delayed message; see :meth:`ScheduleHost.recall`."""
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

    def _shards_of(self, topic: str) -> list[OwnedShard]:
        return [self.shard(topic, queue_id) for queue_id in range(self.topic(topic).queues)]

    def _missing(self, topic: TopicConfig) -> int:
        """Return how many queues have no shard."""
        return sum(
            process not in self.processes
            or self.processes[process].find(topic.name, queue_id) is None
            for process, queues in topic.by_process().items()
            for queue_id in queues
        )

    def _open(self, topic: TopicConfig) -> None:
        for process, queues in topic.by_process().items():
            closed = self._process(process).open(topic, queues).closed
            if closed:
                raise next(iter(closed.values()))

    def _process(self, name: str) -> ShardProcess:
        with self._starting:
            if name not in self.processes:
                self.processes[name] = self._start_process(name)
            return self.processes[name]

    def _end_process(self, name: str) -> None:
        self.processes.pop(name).close()

    def _start_process(self, name: str) -> ShardProcess:
        return ShardProcess(self.data, name, self.sizes, clock_ms=self.clock_ms)


def _report(
    topic: TopicConfig, started: int, on_progress: Callable[[TopicProgress], None] | None
) -> None:
    if on_progress is not None:
        on_progress(TopicProgress(topic.name, topic.queues, topic.queues, started))
