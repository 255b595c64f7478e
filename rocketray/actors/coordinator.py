"""The coordinator: the Ray shell of :class:`~rocketray.actors.cluster_state.ClusterState`.

It starts the shard actors, saves offsets every ``OFFSETS_INTERVAL_S`` and at the stop, and has old
files removed. A coordinator that died is started again by Ray and reads its state; members join
again with their next heartbeat. What a group committed in the last seconds may then be delivered
again, and nothing is lost.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from pathlib import Path
from typing import Any

from rocketray.config import StoreConfig
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

from .catalog import TopicConfig
from .clock import system_clock_ms
from .cluster_state import ClusterState
from .filter_rules import FilterRules
from .groups import GroupDescription, Heartbeat, HeartbeatReply
from .layout import shard_directory
from .ray_runtime import NAMESPACE, GetTimeoutError, RayActorError, RayTaskError, ray
from .shard import ShardActor

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
        self._shard_sizes = shard_sizes
        self._state = ClusterState(self._data, rules, system_clock_ms)
        self._start_shards(list(self._state.topics().values()))
        self._stop = threading.Event()
        threading.Thread(target=self._keep_saving, name="offsets", daemon=True).start()
        threading.Thread(target=self._keep_expiring, name="expiry", daemon=True).start()

    def create_topic(
        self, name: str, queues: int, retention: RetentionPolicy = KEEP_ALL
    ) -> TopicConfig:
        """Make the topic, or give an existing one more queues; returns when its shards answer."""
        topic = self._state.create_topic(name, queues, retention)
        self._start_shards([topic])
        return topic

    def set_permission(self, name: str, perm: int) -> TopicConfig:
        """Allow writing (2), reading (4) or both (6)."""
        topic = self._state.set_permission(name, perm)
        ray.get([shard.set_writable.remote(topic.writable) for shard in _shards(topic)])
        return topic

    def set_retention(self, name: str, retention: RetentionPolicy) -> TopicConfig:
        """Keep a topic's messages for another time, or another number of bytes; from now on."""
        return self._state.set_retention(name, retention)

    def delete_topic(self, name: str) -> None:
        """Remove the topic and all its messages."""
        topic = self._state.delete_topic(name)
        for shard in _shards(topic):
            ray.get(shard.stop.remote())
            ray.kill(shard)
        shutil.rmtree(shard_directory(self._data, name, 0).parent)

    def topics(self) -> dict[str, TopicConfig]:
        """All topics."""
        return self._state.topics()

    def topic(self, name: str) -> TopicConfig:
        """One topic; raises :class:`TopicNotFoundError`."""
        return self._state.topic(name)

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """See :meth:`ClusterState.heartbeat`."""
        return self._state.heartbeat(beat)

    def leave(self, beat: Heartbeat) -> None:
        """See :meth:`ClusterState.leave`."""
        self._state.leave(beat)

    def groups(self) -> list[GroupDescription]:
        """All groups, one entry a topic."""
        return self._state.groups()

    def delete_group(self, group: str) -> None:
        """Forget a group and its offsets; it must have no members."""
        self._state.delete_group(group)

    def expire(self) -> None:
        """Have every shard remove what its topic gives up and no group needs (store/retention.py).

        A shard that is away does so the next time.
        """
        asked = []
        for order in self._state.expiry_orders():
            name = shard_name(order.topic.name, order.queue_id)
            try:
                shard = ray.get_actor(name, namespace=NAMESPACE)
                asked.append((name, shard.expire.remote(order.topic.retention, order.needed_from)))
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
        self._state.save()
        shards = [shard for topic in self._state.topics().values() for shard in _shards(topic)]
        ray.get([shard.stop.remote() for shard in shards])

    def _start_shards(self, topics: list[TopicConfig]) -> None:
        started = [
            _start_shard(self._data, topic, queue, self._shard_sizes)
            for topic in topics
            for queue in range(topic.queues)
        ]
        ray.get([shard.statistics.remote() for shard in started])

    def _keep_saving(self) -> None:
        while not self._stop.wait(OFFSETS_INTERVAL_S):
            try:
                self._state.save()
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
