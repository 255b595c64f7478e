"""A node in this process: real shards, filter engine, groups and queries, and no Ray.

It differs from a connection by its transport, whose calls stay in this process. It has no threads
of its own: its owner steps the shards and the filter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from rocketray.actors.cluster.cluster_state import ClusterState
from rocketray.actors.cluster.system_services import SystemServices
from rocketray.actors.cluster.topic_service import TopicService
from rocketray.broker.filtering.bitmap_orders import Answer, BitmapOrder
from rocketray.broker.filtering.engine import FilterEngine
from rocketray.broker.filtering.filter_api import FilterApi
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.named_filters.named_filters_api import NamedFiltersApi
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.shards.shard_api import LookupApi, ShardApi, ShardProcessApi
from rocketray.broker.shards.shard_problems import subjects_of
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.process_names import SHARED_PROCESS, is_shared
from rocketray.broker.topics.topic_start import Started
from rocketray.broker.topics.topics import TopicsApi
from rocketray.groups.groups_api import GroupsApi, SessionsApi
from rocketray.message import StoredMessage
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.api.system_api import DelaysApi, TransactionsApi
from rocketray.runtime.calls.endpoint import Around, InProcess, ServedObjects
from rocketray.runtime.files.runtime_lock import remove_runtime
from rocketray.services.staging.staged_targets import StagedTargets
from rocketray.services.staging.staging_service import StagingService
from rocketray.store.retention import DiskUse, ExpiredFile

EMPTY_DISK = DiskUse(0, 1 << 40)  # a test does not depend on the disk of its machine


class LocalNode(NodeClient):
    """The parts of a node over one data directory, and a client of it."""

    def __init__(
        self,
        data: Path,
        sizes: Mapping[str, int],
        clock_ms: Callable[[], int],
        rules: FilterRules,
        steady_ms: Callable[[], int] | None = None,
        *,
        around: Around | None = None,
        on_open: Callable[[OwnedShard], None] = lambda _: None,
    ) -> None:
        """Take *sizes*: fields of :class:`~rocketray.base.config.StoreConfig` for new shards.

        *around* runs each call of the node; *on_open* is called with each shard that is opened.
        """
        served = ServedObjects()
        self.calls = InProcess(served, around)
        """The transport of all calls of the node."""
        super().__init__(data, self.calls, clock_ms)
        self.sizes = sizes
        self.rules = rules
        self.processes: dict[str, ShardProcess] = {}
        """The shard processes of the node, all in this one; opened when a topic needs them."""
        self._starting = threading.Lock()  # of processes
        self._steady_ms = steady_ms
        self._on_open = on_open
        self.load_state()
        self.filter = FilterEngine(data, rules)
        self.staging = StagingService(data, StagedTargets(lambda: self), clock_ms=clock_ms)
        """The staged batches; their owner steps them."""
        served.serve(SessionsApi, lambda: self.state)
        served.serve(GroupsApi, lambda: self.state.administration)
        served.serve(TopicsApi, lambda: self.topic_service)
        served.serve(NamedFiltersApi, lambda: self.state.named_filters)
        served.serve(FilterApi, lambda: self.filter)
        served.serve(ShardApi, self.shard)
        served.serve(ShardProcessApi, lambda name: self._process(name).reports)
        served.serve(LookupApi, lambda *place: self.shard(*place).lookups)
        served.serve(TransactionsApi, lambda: self.services.transactions)
        served.serve(DelaysApi, lambda: self.services.schedule)
        self.topic_service.start_all()

    def load_state(self) -> None:
        """Load the coordinator's state from disk, as a coordinator does that starts."""
        self.state = ClusterState(self.data, self.rules, self.clock_ms, self._steady_ms)
        self.topic_service = TopicService(self.state, _LocalShards(self))

    def problems(self) -> list[str]:
        """Return the node's problems, a line each; none if all is well."""
        self.topic_service.note_problems()
        return self.state.problems.lines()

    def expire(self, disk: DiskUse = EMPTY_DISK) -> list[ExpiredFile]:
        """Have every shard remove files beyond its topic's retention that no group needs."""
        return [
            file
            for order in self.state.expiry_orders()
            for file in self.shard(order.topic.name, order.queue_id).writer.expire(
                order.policy, order.needed_from, disk
            )
        ]

    def shard(self, topic: str, queue_id: int) -> OwnedShard:
        """Return the shard that is open for a queue."""
        return self._process(self.topics.get(topic).process_of(queue_id)).shard(topic, queue_id)

    @cached_property
    def services(self) -> SystemServices:
        """The system services; created when they are first needed."""
        process = self._process(SHARED_PROCESS)
        return SystemServices(process, lambda: self, clock_ms=self.clock_ms)

    def stored(self, topic: str) -> list[StoredMessage]:
        """Return all stored messages of a topic, queue by queue, in order within each."""
        return [
            message
            for shard in shards_of(self, topic)
            for message in shard.writer.store.reads.scan()
        ]

    def close(self) -> None:
        """Bring everything to disk and release the directory."""
        self.state.save()
        self.filter.close()
        self.staging.close()
        # A look at the property itself would create them.
        if "services" in vars(self):
            self.services.close()
        for process in self.processes.values():
            process.close()
        remove_runtime(self.data)

    def open_shards(self, topic: TopicConfig, queues: range) -> None:
        """Open the shards of queues of a topic; leave those alone that are open."""
        for name, queue_ids in topic.by_process(queues).items():
            closed = self._process(name).open([(topic, queue_ids)]).closed
            if closed:
                raise next(iter(closed.values()))
        for queue_id in queues:
            self._on_open(self._process(topic.process_of(queue_id)).shard(topic.name, queue_id))

    def end_process(self, name: str) -> None:
        """Close a shard process with all its shards."""
        with self._starting:  # its files are free when the next one starts
            self.processes.pop(name).close()

    def _process(self, name: str) -> ShardProcess:
        with self._starting:
            if name not in self.processes:
                self.processes[name] = self._start_process(name)
            return self.processes[name]

    def _start_process(self, name: str) -> ShardProcess:
        return ShardProcess(self.data, name, self.sizes, clock_ms=self.clock_ms)


def shards_of(node: LocalNode, topic: str) -> list[OwnedShard]:
    """Return the shards of a topic, by queue."""
    return [node.shard(topic, queue_id) for queue_id in range(node.topics.get(topic).queues)]


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
                if not is_shared(name):
                    self._node.end_process(name)

    def problems(
        self, topics: Iterable[TopicConfig], noted: Collection[str]
    ) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for topic in topics:
            for name, queue_ids in topic.by_process().items():
                if process := self._node.processes.get(name):
                    lines = process.problems()
                    for queue_id in queue_ids:
                        subjects = {*subjects_of(f"{topic.name}/{queue_id}")}
                        found |= dict.fromkeys(subjects.intersection(noted))
                        found |= {each: lines[each] for each in subjects.intersection(lines)}
        return found

    def remove_files(self, topic: TopicConfig) -> None:
        """Do nothing: there is one disk."""

    def set_writable(self, topic: TopicConfig) -> None:
        for shard in shards_of(self._node, topic.name):
            shard.set_writable(topic.writable)

    def keep_bitmaps(self, orders: Sequence[BitmapOrder]) -> list[list[Answer] | None]:
        return [
            [shard.keep_bitmaps(order.living) for shard in shards_of(self._node, order.topic.name)]
            for order in orders
        ]

    def _is_open(self, topic: TopicConfig, queue_id: int) -> bool:
        process = self._node.processes.get(topic.process_of(queue_id))
        return process is not None and process.find(topic.name, queue_id) is not None
