"""A node in this process whose data plane is the real one: rings, threads and the machine's clock."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Self, Unpack

from support.harness import open_nodes
from support.nodes.wired_fetches import wired

from rocketray.actors.cluster.shard_process_actor import DELIVERIES_AT_ONCE
from rocketray.actors.cluster.system_services import SystemServices
from rocketray.base.ack_mode import AckMode
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.shards.shard_process import ShardProcess
from rocketray.broker.shards.shard_threads import ShardThreads
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.process_names import SHARED_PROCESS
from rocketray.filters.subscription import Subscription
from rocketray.groups.member_options import MemberOptions
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.remote.fetch_sessions import FetchSessions
from rocketray.messaging.remote.fetched_streams import FetchedStreams
from rocketray.runtime.calls.endpoint import run_in_thread
from rocketray.runtime.clock import system_clock_ms
from rocketray.services.explaining.explanation import Explanation
from rocketray.services.explaining.inquiry import inquire
from rocketray.store.formats.compression import CompressionKind
from rocketray.testing import node

SEGMENT = 1024 * 1024
SIZES = {
    "commit_log_segment_bytes": SEGMENT,
    "consume_queue_segment_entries": 1000,
    "index_hash_slots": 1000,
    "index_entries": 4000,
}
RULES = FilterRules(allowed=("support",))


class LocalNode(node.LocalNode):
    """Shards, services and the filter run by themselves, and members have hearts."""

    def __init__(self, data: Path, rules: FilterRules = RULES) -> None:
        self.has_far_members = False
        """Whether members join as if on another node."""
        self.gateway = FetchSessions(self, time.monotonic)
        self._threads: dict[str, ShardThreads] = {}
        self._deliveries = ThreadPoolExecutor(DELIVERIES_AT_ONCE, "deliveries")
        try:
            super().__init__(data, SIZES, system_clock_ms, rules)
        except BaseException:
            self._stop_threads()
            raise
        self.calls.in_background = run_in_thread
        self._stop = threading.Event()
        self._filter_thread = threading.Thread(
            target=self.filter.run, args=(self._stop,), daemon=True
        )
        self._filter_thread.start()
        open_nodes.note(self, data)

    @cached_property
    def services(self) -> SystemServices:
        services = SystemServices(
            self._process(SHARED_PROCESS),
            lambda: self,
            clock_ms=self.clock_ms,
            submit=self._deliveries.submit,
        )
        services.start()
        return services

    def stall(self, topic: str, queue_id: int) -> None:
        """End the threads of a process: what is in the rings waits until something drains them."""
        self._threads.pop(self.topics.get(topic).process_of(queue_id)).stop()

    @property
    def shards(self) -> dict[tuple[str, int], OwnedShard]:
        """The shards of the topics that have processes of their own."""
        return {
            (topic.name, queue_id): self.shard(topic.name, queue_id)
            for topic in self.topics.all().values()
            for queue_id in range(topic.queues)
            if topic.process_of(queue_id) != SHARED_PROCESS
        }

    def producer(
        self, *, ack: AckMode | None = None, compression: CompressionKind | None = None
    ) -> NodeProducer:
        return NodeProducer(self, ack=ack, compression=compression)

    def consumer(
        self,
        group: str,
        topic: str,
        subscription: Subscription,
        **options: Unpack[MemberOptions],
    ) -> GroupConsumer:
        if self.has_far_members:
            return self.remote_consumer(group, topic, subscription, **options)
        return GroupConsumer(self, group, topic, subscription, **options)

    def remote_consumer(
        self, group: str, topic: str, subscription: Subscription, **options: Unpack[MemberOptions]
    ) -> GroupConsumer:
        """A member as if on another node."""
        streams = FetchedStreams(wired(lambda: self.gateway), group, topic)
        return GroupConsumer(self, group, topic, subscription, streams=streams, **options)

    def explain(
        self, message: str, group: str | None = None, topic: str | None = None
    ) -> Explanation:
        return inquire(self, message, group, topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._end_threads()
        super().close()
        self._deliveries.shutdown()

    def die(self) -> None:
        """End without saving anything, as a killed process whose files the kernel closes."""
        self._end_threads()
        for process in self.processes.values():
            process.close()
        self.filter.close()

    def _end_threads(self) -> None:
        open_nodes.forget(self)
        self.gateway.close()
        self._stop.set()
        self.filter.wake()
        self._filter_thread.join()
        self._stop_threads()

    def _stop_threads(self) -> None:
        for threads in self._threads.values():
            threads.stop()

    def _start_process(self, name: str) -> ShardProcess:
        process = super()._start_process(name)
        self._threads[name] = ShardThreads(
            process,
            flush_interval_s=0.5,
            on_failure=lambda: None,
            on_stored=self._wake_services if name == SHARED_PROCESS else lambda: None,
        )
        return process

    def end_process(self, name: str) -> None:
        self._threads.pop(name).stop()
        super().end_process(name)

    def open_shards(self, topic: TopicConfig, queues: range) -> None:
        super().open_shards(topic, queues)
        if SHARED_PROCESS in self.processes:
            self.services.wake()

    def _wake_services(self) -> None:
        if "services" in vars(self):
            self.services.wake()
