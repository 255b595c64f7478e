"""The coordinator: topics, groups, offsets and subscriptions of a cluster, and its shard actors.

State on disk, in DATA/config, as JSON: topics before a change takes effect, subscriptions and the
SQL92 filters among them when they change, offsets every ``OFFSETS_INTERVAL_S`` and at the stop. A
coordinator that died is started again by Ray and reads them; members join again with their next
heartbeat. What a group committed in the last seconds may then be delivered again, and nothing is
lost.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from pathlib import Path
from typing import Any

from rocketray.config import StoreConfig
from rocketray.errors import ConfigError
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

from .catalog import TopicCatalog, TopicConfig
from .clock import system_clock_ms
from .files import read_json, write_json
from .filter_rules import FilterRules
from .groups import GroupDescription, GroupRegistry, Heartbeat, HeartbeatReply
from .layout import config_directory, shard_directory
from .ray_runtime import NAMESPACE, GetTimeoutError, RayActorError, RayTaskError, ray
from .shard import ShardActor
from .sql_filters import SqlFilters

__all__ = ["COORDINATOR_NAME", "CoordinatorActor", "shard_name"]

_LOG = logging.getLogger(__name__)
COORDINATOR_NAME = "coordinator"
OFFSETS_INTERVAL_S = 5.0
EXPIRE_INTERVAL_S = 10.0
_SHARD_THREADS = 8


def shard_name(topic: str, queue_id: int) -> str:
    """The name of a shard's actor."""
    return f"shard:{topic}:{queue_id}"


class CoordinatorActor:
    """The one actor that changes a cluster's state."""

    def __init__(self, data: str, shard_sizes: dict[str, int], rules: FilterRules) -> None:
        self._data = Path(data)
        self._rules = rules
        self._shard_sizes = shard_sizes
        self._lock = threading.RLock()
        self._catalog = TopicCatalog.load(self._data)
        self._groups = GroupRegistry()
        config = config_directory(self._data)
        self._groups.load(
            read_json(config / "subscriptionGroup.json"),
            read_json(config / "consumerOffset.json"),
            system_clock_ms(),
        )
        self._sql_filters = SqlFilters(self._data, system_clock_ms)
        self._start_shards(list(self._catalog.topics.values()))
        self._stop = threading.Event()
        threading.Thread(target=self._keep_saving, name="offsets", daemon=True).start()
        threading.Thread(target=self._keep_expiring, name="expiry", daemon=True).start()

    def create_topic(
        self, name: str, queues: int, retention: RetentionPolicy = KEEP_ALL
    ) -> TopicConfig:
        """Make the topic, or give an existing one more queues; returns when its shards answer."""
        with self._lock:
            existing = self._catalog.topics.get(name)
            if existing is None or existing.queues != queues:
                catalog = self._catalog.with_topic(name, queues, retention)
                catalog.save(self._data)
                self._catalog = catalog
            topic = self._catalog.get(name)
        self._start_shards([topic])
        return topic

    def set_permission(self, name: str, perm: int) -> TopicConfig:
        """Allow writing (2), reading (4) or both (6)."""
        with self._lock:
            catalog = self._catalog.with_permission(name, perm)
            catalog.save(self._data)
            self._catalog = catalog
            topic = catalog.get(name)
        ray.get([shard.set_writable.remote(topic.writable) for shard in _shards(topic)])
        return topic

    def set_retention(self, name: str, retention: RetentionPolicy) -> TopicConfig:
        """Keep a topic's messages for another time, or another number of bytes; from now on."""
        with self._lock:
            catalog = self._catalog.with_retention(name, retention)
            catalog.save(self._data)
            self._catalog = catalog
            return catalog.get(name)

    def delete_topic(self, name: str) -> None:
        """Remove the topic and all its messages."""
        with self._lock:
            topic = self._catalog.get(name)
            catalog = self._catalog.without_topic(name)
            catalog.save(self._data)
            self._catalog = catalog
            self._groups.forget_topic(name)
            self._save_groups()
        for shard in _shards(topic):
            ray.get(shard.stop.remote())
            ray.kill(shard)
        shutil.rmtree(shard_directory(self._data, name, 0).parent)

    def topics(self) -> dict[str, TopicConfig]:
        """All topics."""
        return dict(self._catalog.topics)

    def topic(self, name: str) -> TopicConfig:
        """One topic; raises :class:`TopicNotFoundError`."""
        return self._catalog.get(name)

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """See :meth:`GroupRegistry.heartbeat`."""
        topic = self._catalog.get(beat.topic)
        if not topic.readable:
            raise ConfigError(
                f"topic {topic.name!r} may not be read (permission {topic.perm}); change it with: "
                f"rocketray topics alter {topic.name} --perm 6"
            )
        self._rules.check(beat.group, beat.topic, beat.subscription)
        with self._lock:
            reply = self._groups.heartbeat(beat, topic.queues, system_clock_ms())
            self._save_groups()
            return reply

    def leave(self, beat: Heartbeat) -> None:
        """See :meth:`GroupRegistry.leave`."""
        with self._lock:
            self._groups.leave(beat)
            self._save_offsets()

    def groups(self) -> list[GroupDescription]:
        """All groups, one entry a topic."""
        with self._lock:
            queues = {name: topic.queues for name, topic in self._catalog.topics.items()}
            return self._groups.describe(queues, system_clock_ms())

    def delete_group(self, group: str) -> None:
        """Forget a group and its offsets; it must have no members."""
        with self._lock:
            self._groups.delete(group, system_clock_ms())
            self._save_groups()
            self._save_offsets()

    def expire(self) -> None:
        """Have every shard remove what its topic gives up and no group needs (store/retention.py).

        A shard that is away does so the next time.
        """
        with self._lock:
            orders = [
                (topic, queue, self._groups.needed_from(topic.name, queue))
                for topic in self._catalog.topics.values()
                if not topic.retention.keeps_all
                for queue in range(topic.queues)
            ]
        asked = []
        for topic, queue, needed_from in orders:
            name = shard_name(topic.name, queue)
            try:
                shard = ray.get_actor(name, namespace=NAMESPACE)
                asked.append((name, shard.expire.remote(topic.retention, needed_from)))
            except ValueError:
                _LOG.warning("%s is away; its old files wait", name)
        for name, answer in asked:
            try:
                ray.get(answer, timeout=EXPIRE_INTERVAL_S)
            except (RayActorError, RayTaskError, GetTimeoutError) as error:
                _LOG.warning("%s did not remove its old files: %s", name, error)

    def node_id(self) -> str:
        """The Ray node that this actor, and with it every shard, runs on."""
        return str(ray.get_runtime_context().get_node_id())

    def pid(self) -> int:
        """The process id, for tests that end it."""
        return os.getpid()

    def stop(self) -> None:
        """Save the offsets, then stop every shard: all they hold is on disk when this returns."""
        self._stop.set()
        with self._lock:
            self._save_offsets()
        shards = [shard for topic in self._catalog.topics.values() for shard in _shards(topic)]
        ray.get([shard.stop.remote() for shard in shards])

    def _start_shards(self, topics: list[TopicConfig]) -> None:
        started = [
            _start_shard(self._data, topic, queue, self._shard_sizes)
            for topic in topics
            for queue in range(topic.queues)
        ]
        ray.get([shard.statistics.remote() for shard in started])

    def _save_groups(self) -> None:
        if self._groups.groups_changed:
            path = config_directory(self._data) / "subscriptionGroup.json"
            write_json(path, self._groups.groups_to_json())
            self._groups.groups_changed = False
            self._settle_filters()

    def _settle_filters(self) -> None:
        self._sql_filters.settle(self._groups.live_subscriptions(system_clock_ms()))

    def _save_offsets(self) -> None:
        if self._groups.offsets.changed:
            path = config_directory(self._data) / "consumerOffset.json"
            write_json(path, self._groups.offsets.to_json())
            self._groups.offsets.changed = False

    def _keep_saving(self) -> None:
        while not self._stop.wait(OFFSETS_INTERVAL_S):
            try:
                with self._lock:
                    self._save_offsets()
                    self._settle_filters()
            except OSError:
                _LOG.exception("offsets or filters could not be saved; trying again")

    def _keep_expiring(self) -> None:
        while not self._stop.wait(EXPIRE_INTERVAL_S):
            self.expire()


def _shards(topic: TopicConfig) -> list[Any]:
    return [
        ray.get_actor(shard_name(topic.name, queue), namespace=NAMESPACE)
        for queue in range(topic.queues)
    ]


def _start_shard(data: Path, topic: TopicConfig, queue: int, sizes: dict[str, Any]) -> Any:
    config = StoreConfig(store_host=topic.store_hosts[queue], **sizes)
    options = {
        "name": shard_name(topic.name, queue),
        "namespace": NAMESPACE,
        "get_if_exists": True,
        "lifetime": "detached",
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": -1,
        "max_concurrency": _SHARD_THREADS,
    }
    actor = ray.remote(ShardActor).options(**options)
    return actor.remote(str(data), topic.name, queue, config)
