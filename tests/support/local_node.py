"""A node in this process: the real shards, filter engine and groups, with threads for actors."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Self, Unpack

from rocketray.actors.catalog import TopicConfig
from rocketray.actors.clock import system_clock_ms
from rocketray.actors.cluster_state import ClusterState
from rocketray.actors.consumer import GroupConsumer, MemberOptions
from rocketray.actors.explanation import StoredFacts
from rocketray.actors.filter import FilterEngine
from rocketray.actors.filter_rules import FilterRules
from rocketray.actors.groups import GroupDescription
from rocketray.actors.heartbeat import Heartbeat, HeartbeatReply
from rocketray.actors.host_services import Services
from rocketray.actors.hosted_log import HostedLog
from rocketray.actors.layout import filter_doorbell_path, runtime_directory, shard_directory
from rocketray.actors.producer import Producer
from rocketray.actors.queue_tail import QueueTail
from rocketray.actors.remote_consumer import RemoteGroupConsumer
from rocketray.actors.remote_members import JoinRequest, RemoteMembers
from rocketray.actors.ring import Ack, Durability
from rocketray.actors.schedule_host import ScheduleHost
from rocketray.actors.shard_host import ShardHost
from rocketray.actors.shard_host_actor import HostThreads
from rocketray.actors.shard_writer import ShardStatistics, ShardWriter
from rocketray.actors.transaction_host import TransactionHost
from rocketray.actors.watermark import Doorbell
from rocketray.config import StoreConfig
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage
from rocketray.store.message_id import decode_offset_id
from rocketray.store.retention import KEEP_ALL, DiskUse, ExpiredFile, RetentionPolicy

SMALL = StoreConfig(
    commit_log_segment_bytes=1024 * 1024,
    consume_queue_segment_entries=1000,
    index_hash_slots=1000,
    index_entries=4000,
)
SIZES = (
    "commit_log_segment_bytes",
    "consume_queue_segment_entries",
    "index_hash_slots",
    "index_entries",
)
RULES = FilterRules(allowed=("support",))


EMPTY_DISK = DiskUse(0, 1 << 40)


class LocalShard:
    """A shard's writer with its thread."""

    def __init__(self, data: Path, topic: TopicConfig, queue_id: int) -> None:
        directory = shard_directory(data, topic.name, queue_id)
        host = topic.store_hosts[queue_id]
        config = StoreConfig(
            SMALL.commit_log_segment_bytes,
            SMALL.consume_queue_segment_entries,
            SMALL.index_hash_slots,
            SMALL.index_entries,
            store_host=host,
        )
        self.writer = ShardWriter(directory, topic.name, queue_id, config, clock_ms=system_clock_ms)
        self._filter_doorbell = Doorbell(filter_doorbell_path(data))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def attach(self, path: str) -> None:
        self.writer.attach(Path(path))
        self.writer.control.doorbell.ring()

    def append(self, payload: bytes, durability: int, *, attempt: int = 0) -> Ack:
        ack = self.writer.append(payload, Durability(durability))
        self._filter_doorbell.ring()
        return ack

    def close(self) -> None:
        self._stop.set()
        self.writer.control.doorbell.ring()
        self._thread.join()
        self.writer.drain()
        self.writer.close()

    def _run(self) -> None:
        doorbell = self.writer.control.doorbell
        while not self._stop.is_set():
            rung = doorbell.load()
            if self.writer.drain():
                self._filter_doorbell.ring()
            else:
                doorbell.wait_above(rung, 0.2)


class HostedShard:
    """A shard in the host, as if it stood alone."""

    def __init__(self, host: ShardHost, topic: str, queue_id: int) -> None:
        self._host = host
        self._place = topic, queue_id

    @property
    def writer(self) -> ShardWriter:
        return self._host.shard(*self._place).writer

    def attach(self, path: str) -> None:
        self._host.shard(*self._place).attach(path)

    def append(self, payload: bytes, durability: int, *, attempt: int = 0) -> Ack:
        return self._host.append(*self._place, payload, durability, attempt=attempt)


class LocalHost:
    """The shard host with its threads."""

    def __init__(self, data: Path, services: Services, node: LocalNode) -> None:
        sizes = {name: getattr(SMALL, name) for name in SIZES}
        self.host = ShardHost(data, sizes, clock_ms=system_clock_ms)
        self.transactions = TransactionHost(
            HostedLog(self.host, system_clock_ms),
            lambda: node,
            data=data,
            clock_ms=system_clock_ms,
        )
        services.add(self.transactions)
        self.schedule = ScheduleHost(self.host, lambda: node, data)
        services.add(self.schedule)
        self._threads = HostThreads(
            self.host,
            services,
            clock_ms=system_clock_ms,
            flush_interval_s=0.5,
            on_failure=lambda: None,
        )

    def close(self) -> None:
        self._threads.stop()
        self.transactions.close()
        self.schedule.close()
        self.host.close()


class LocalNode:
    """Implements what producers and group members ask of a connection."""

    def __init__(self, data: Path, rules: FilterRules = RULES) -> None:
        self.data = data
        self.rules = rules
        self.shards: dict[tuple[str, int], LocalShard] = {}
        self.hosted: dict[tuple[str, int], HostedShard] = {}
        self.services = Services()
        self._host: LocalHost | None = None
        self.state = ClusterState(data, rules, system_clock_ms)
        self.groups = self.state.registry
        self._creating = threading.Lock()
        self.local = True
        self.gateway = RemoteMembers(self._join, time.monotonic)
        self.filter = FilterEngine(data, rules)
        self._stop = threading.Event()
        self._filter_thread = threading.Thread(
            target=self.filter.run, args=(self._stop,), daemon=True
        )
        self._filter_thread.start()
        for topic in self.topics().values():
            self._open(topic)

    def create_topic(
        self,
        topic: str,
        queues: int = 4,
        retention: RetentionPolicy = KEEP_ALL,
        *,
        hosted: bool = False,
    ) -> TopicConfig:
        with self._creating:  # whoever finds the topic finds its shards
            existing = self.topics().get(topic)
            if existing is None:
                existing = self.state.create_topic(topic, queues, retention, hosted=hosted)
                self._open(existing)
            return existing

    def expire(self, disk: DiskUse = EMPTY_DISK) -> list[ExpiredFile]:
        """What the coordinator has its shards do every ten seconds."""
        return [
            file
            for order in self.state.expiry_orders()
            for file in self._shard(order.topic.name, order.queue_id).writer.expire(
                order.topic.retention, order.needed_from, disk
            )
        ]

    def shard_statistics(self, topic: str) -> list[ShardStatistics]:
        queues = range(self.topic(topic).queues)
        return [self._shard(topic, queue).writer.statistics() for queue in queues]

    def message_at(self, topic: str, queue_id: int, queue_offset: int) -> StoredMessage | None:
        writer = self._shard(topic, queue_id).writer
        with writer.reading():
            return writer.message_at(queue_offset)

    def topic(self, name: str) -> TopicConfig:
        return self.state.topic(name)

    def gate(self, topic: str, queue_id: int) -> LocalShard | HostedShard:
        return self._shard(topic, queue_id)

    def is_local(self, topic: str, queue_id: int) -> bool:
        return self.local

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        return self.state.heartbeat(beat)

    def leave(self, beat: Heartbeat) -> None:
        self.state.leave(beat)

    def attach_stream(self, path: str) -> None:
        self.filter.attach(Path(path))

    # What explaining asks for

    def topics(self) -> dict[str, TopicConfig]:
        return self.state.topics()

    def view(self, offset_message_id: str) -> StoredMessage | None:
        shard = self.state.shard_of_host(decode_offset_id(offset_message_id).store_host)
        return shard and self._shard(*shard).writer.store.view_by_id(offset_message_id)

    def query(self, topic: str, key: str, max_count: int = 64) -> list[StoredMessage]:
        queues = range(self.topic(topic).queues)
        stores = [self._shard(topic, queue).writer.store for queue in queues]
        return [found for store in stores for found in store.query(topic, key, max_count)]

    def descriptions(self) -> list[GroupDescription]:
        return self.state.groups()

    def stored_facts(self, message: StoredMessage) -> StoredFacts:
        return self._shard(message.topic, message.queue_id).writer.facts(message)

    def ask_predicate(self, subscription: Subscription, message: StoredMessage) -> bool:
        place = message.topic, message.queue_id, message.queue_offset
        return self.filter.ask_predicate(subscription, place)

    def transaction_checks(self, group: str) -> list[StoredMessage]:
        return self._host.transactions.checks(group) if self._host else []

    def recall(self, handle: str) -> bool:
        assert self._host is not None
        return self._host.schedule.recall(handle)

    def tidy_schedule(self) -> None:
        """What the schedule does every ten seconds."""
        assert self._host is not None
        self._host.schedule.tidy()

    def producer(self) -> Producer:
        return Producer(self)

    def remote_consumer(
        self, group: str, topic: str, subscription: Subscription, **options: Unpack[MemberOptions]
    ) -> RemoteGroupConsumer:
        """A member as if on another node."""
        return RemoteGroupConsumer(self.gateway, group, topic, subscription, **options)

    def consumer(
        self,
        group: str,
        topic: str,
        subscription: Subscription,
        **options: Unpack[MemberOptions],
    ) -> GroupConsumer:
        return GroupConsumer(self, group, topic, subscription, **options)

    def queue_tail(self, topic: str, queue_id: int) -> QueueTail:
        return QueueTail(self.data, topic, queue_id)

    def _join(self, request: JoinRequest) -> GroupConsumer:
        identity = request.group, request.topic, request.subscription
        return GroupConsumer(self, *identity, **request.options)

    def close(self) -> None:
        self.gateway.close()
        self._stop.set()
        self.filter.wake()
        self._filter_thread.join()
        for shard in self.shards.values():
            shard.close()
        if self._host is not None:
            self._host.close()
        shutil.rmtree(runtime_directory(self.data), ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _shard(self, topic: str, queue_id: int) -> LocalShard | HostedShard:
        key = topic, queue_id
        return self.hosted[key] if key in self.hosted else self.shards[key]

    def _open(self, topic: TopicConfig) -> None:
        if topic.hosted:
            self._host = self._host or LocalHost(self.data, self.services, self)
            self._host.host.open(topic)
        for queue_id in range(topic.queues):
            key = (topic.name, queue_id)
            if topic.hosted and self._host is not None:
                self.hosted[key] = HostedShard(self._host.host, *key)
            elif key not in self.shards:
                self.shards[key] = LocalShard(self.data, topic, queue_id)
