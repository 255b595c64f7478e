"""A node in this process whose data plane is the real one: rings, threads and the machine's clock."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Unpack

from rocketray.actors.cluster.system_actor import DELIVERIES_AT_ONCE, HostThreads
from rocketray.actors.cluster.system_services import Hosting
from rocketray.actors.consumers.member import GroupConsumer
from rocketray.actors.filtering.filter_rules import FilterRules
from rocketray.actors.groups.member_options import MemberOptions
from rocketray.actors.ipc.ring import Ack
from rocketray.actors.producers.producer import AckMode, Producer
from rocketray.actors.producers.queue_link import ShardGate
from rocketray.actors.remote.remote_calls import JoinRequest
from rocketray.actors.remote.remote_consumer import RemoteGroupConsumer
from rocketray.actors.remote.remote_members import RemoteMembers
from rocketray.actors.runtime.clock import system_clock_ms
from rocketray.actors.shards.owned_shard import OwnedShard
from rocketray.actors.system.host_services import Services
from rocketray.actors.system.shard_host import ShardHost
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.config import StoreConfig
from rocketray.filters.subscription import Subscription
from rocketray.store.formats.compression import CompressionKind
from rocketray.testing import node
from rocketray.transaction import Decision, Verdict

__all__ = ["RULES", "SEGMENT", "HostedShard", "LocalNode", "LocalShard"]

SEGMENT = 1024 * 1024
SIZES = {
    "commit_log_segment_bytes": SEGMENT,
    "consume_queue_segment_entries": 1000,
    "index_hash_slots": 1000,
    "index_entries": 4000,
}
RULES = FilterRules(allowed=("support",))


class LocalShard(OwnedShard):
    """A shard with its thread."""

    def __init__(self, data: Path, topic: TopicConfig, queue_id: int) -> None:
        config = StoreConfig(store_host=topic.store_hosts[queue_id], **SIZES)  # type: ignore[arg-type]
        super().__init__(data, topic, queue_id, config, clock_ms=system_clock_ms)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stall(self) -> None:
        """End the thread: what is in the rings waits until something else drains them."""
        self._stop.set()
        self.writer.control.doorbell.ring()
        self._thread.join()

    def close(self) -> None:
        self.stall()
        super().close()

    def _run(self) -> None:
        doorbell = self.writer.control.doorbell
        while not self._stop.is_set():
            rung = doorbell.load()
            if not self.drain():
                doorbell.wait_above(rung, 0.2)


class HostedShard:
    """The calls of a shard in the host, as if it stood alone."""

    def __init__(self, host: ShardHost, topic: str, queue_id: int) -> None:
        self._host = host
        self._place = topic, queue_id

    def attach(self, path: str) -> None:
        self._host.shard(*self._place).attach(path)

    def append(self, payload: bytes, durability: int, *, attempt: int = 0) -> Ack:
        return self._host.append(*self._place, payload, durability, attempt=attempt)


class LocalNode(node.LocalNode):
    """Shards, their host and the filter run by themselves, and members have hearts."""

    def __init__(self, data: Path, rules: FilterRules = RULES) -> None:
        self.local = True
        self.gateway = RemoteMembers(self._join, time.monotonic)
        self._host_threads: HostThreads | None = None
        super().__init__(data, SIZES, system_clock_ms, rules)
        self._stop = threading.Event()
        self._filter_thread = threading.Thread(
            target=self.filter.run, args=(self._stop,), daemon=True
        )
        self._filter_thread.start()

    @cached_property
    def hosting(self) -> Hosting:
        hosting = Hosting(
            self.data,
            self.sizes,
            lambda: self,
            clock_ms=self.clock_ms,
            submit=ThreadPoolExecutor(DELIVERIES_AT_ONCE).submit,
        )
        self._host_threads = HostThreads(
            hosting.host,
            hosting.services,
            clock_ms=self.clock_ms,
            flush_interval_s=0.5,
            on_failure=lambda: None,
        )
        return hosting

    def decide_transaction(self, wanted: Decision, *, to_disk: bool) -> Verdict:
        verdict = super().decide_transaction(wanted, to_disk=to_disk)
        assert self._host_threads is not None
        self._host_threads.serve_soon()
        return verdict

    @property
    def services(self) -> Services:
        return self.hosting.services

    def is_local(self, topic: str, queue_id: int) -> bool:
        return self.local

    def gate(self, topic: str, queue_id: int) -> ShardGate:
        if self.topic(topic).hosted:
            return HostedShard(self.hosting.host, topic, queue_id)
        return self.shards[topic, queue_id]

    def producer(
        self, *, ack: AckMode = "memory", compression: CompressionKind | None = None
    ) -> Producer:
        return Producer(self, ack=ack, compression=compression)

    def consumer(
        self,
        group: str,
        topic: str,
        subscription: Subscription,
        **options: Unpack[MemberOptions],
    ) -> GroupConsumer:
        return GroupConsumer(self, group, topic, subscription, **options)

    def remote_consumer(
        self, group: str, topic: str, subscription: Subscription, **options: Unpack[MemberOptions]
    ) -> RemoteGroupConsumer:
        """A member as if on another node."""
        return RemoteGroupConsumer(self.gateway, group, topic, subscription, **options)

    def close(self) -> None:
        self.gateway.close()
        self._stop.set()
        self.filter.wake()
        self._filter_thread.join()
        if self._host_threads is not None:
            self._host_threads.stop()
        super().close()

    def _join(self, request: JoinRequest) -> GroupConsumer:
        identity = request.group, request.topic, request.subscription
        return GroupConsumer(self, *identity, **request.options)

    def _make_shard(self, topic: TopicConfig, queue_id: int) -> LocalShard:
        return LocalShard(self.data, topic, queue_id)
