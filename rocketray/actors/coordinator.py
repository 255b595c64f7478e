"""The coordinator: the Ray shell of :class:`~rocketray.actors.cluster_state.ClusterState`.

It starts the shard actors, saves offsets every ``OFFSETS_INTERVAL_S`` and at the stop, and has old
files removed. A coordinator that died is started again by Ray and reads its state; members join
again with their next heartbeat, and say how far they are. So a message comes again only when its
reader died too, between its commit and the next save; nothing is lost.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import Any

from rocketray.errors import ShardUnavailableError
from rocketray.hashing import java_hash_code
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

from .bitmap_orders import BitmapOrder
from .catalog import TopicConfig
from .chores import start_chore
from .clock import steady_clock_ms, system_clock_ms
from .cluster_state import ClusterState
from .files import remove_topic
from .filter_rules import FilterRules
from .gateway import GATEWAY_NAME, GATEWAY_THREADS, GatewayActor
from .group_administration import GroupQuestion
from .group_views import GroupDescription
from .heartbeat import Heartbeat, HeartbeatReply
from .ray_runtime import GetTimeoutError, RayActorError, RayTaskError, ray
from .shard_calls import (
    ShardCalls,
    find_actor,
    remove_shards,
    shards_of,
    start_actor,
    start_shards,
    stop_shards,
)

__all__ = ["COORDINATOR_NAME", "CoordinatorActor"]

_LOG = logging.getLogger(__name__)
COORDINATOR_NAME = "coordinator"
OFFSETS_INTERVAL_S = 5.0
EXPIRE_INTERVAL_S = 10.0
BITMAPS_INTERVAL_S = 2.0
_TOPIC_LOCKS = 64  # topics that share one wait for each other, no more


class CoordinatorActor:
    """The one actor that changes a cluster's state."""

    def __init__(self, data: str, shard_sizes: dict[str, int], rules: FilterRules) -> None:
        self._data = Path(data)
        self._shard_sizes = shard_sizes
        self._state = ClusterState(self._data, rules, system_clock_ms, steady_clock_ms)
        self._start_shards(list(self._state.topics().values()))
        self._coming_or_going = [threading.Lock() for _ in range(_TOPIC_LOCKS)]
        self._state.begin_to_listen()  # shards that restart take their time
        self._stop = threading.Event()
        self._ordering = threading.Lock()
        start_chore("saving offsets and filters", OFFSETS_INTERVAL_S, self._stop, self._state.save)
        start_chore("removing old files", EXPIRE_INTERVAL_S, self._stop, self.expire)
        every_s, order = BITMAPS_INTERVAL_S, self.order_bitmaps
        start_chore("ordering bitmaps", every_s, self._stop, order, at_once=True)

    def create_topic(
        self,
        name: str,
        queues: int,
        retention: RetentionPolicy = KEEP_ALL,
        hosted: bool = False,  # noqa: FBT001, FBT002 - as it came over the wire
    ) -> TopicConfig:
        """Make the topic, or give an existing one more queues; returns when its shards answer."""
        with self._comes_or_goes(name):
            topic = self._state.create_topic(name, queues, retention, hosted=hosted)
            self._start_shards([topic])
        return topic

    def set_permission(self, name: str, perm: int) -> TopicConfig:
        """Allow writing (2), reading (4) or both (6)."""
        topic = self._state.set_permission(name, perm)
        ray.get([shard.ask("set_writable", topic.writable) for shard in shards_of(topic)])
        return topic

    def set_retention(self, name: str, retention: RetentionPolicy) -> TopicConfig:
        """Keep a topic's messages for another time, or another number of bytes; from now on."""
        return self._state.set_retention(name, retention)

    def set_bitmaps(self, name: str, mode: str) -> TopicConfig:
        """Keep filter bitmaps always (on), never (off), or where they pay (auto); from now on."""
        topic = self._state.set_bitmaps(name, mode)
        self.order_bitmaps()
        return topic

    def delete_topic(self, name: str) -> None:
        """Remove the topic and all its messages."""
        with self._comes_or_goes(name):
            topic = self._state.delete_topic(name)
            try:
                remove_shards(topic)
            finally:  # a topic that is made again must not begin with these messages
                remove_topic(self._data, name)

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

    def ask_groups(self, question: GroupQuestion, *arguments: Any) -> Any:
        """See :meth:`ClusterState.ask_groups`."""
        return self._state.ask_groups(question, *arguments)

    def expire(self) -> None:
        """Have every shard remove what its topic gives up and no group needs (store/retention.py).

        A shard that is away does so the next time.
        """
        asked = []
        for order in self._state.expiry_orders():
            shard = ShardCalls(order.topic, order.queue_id)
            try:
                answer = shard.ask("expire", order.policy, order.needed_from)
                asked.append((shard.name, answer))
            except ShardUnavailableError:
                _LOG.warning("%s is away; its old files wait", shard.name)
        for name, answer in asked:
            try:
                ray.get(answer, timeout=EXPIRE_INTERVAL_S)
            except (RayActorError, RayTaskError, GetTimeoutError) as error:
                _LOG.warning("%s did not remove its old files: %s", name, error)

    def open_gateway(self) -> None:
        """Let members of other nodes in; returns when they may come."""
        gateway = start_actor(GatewayActor, GATEWAY_NAME, GATEWAY_THREADS, str(self._data))
        ray.get(gateway.ready.remote())

    def order_bitmaps(self) -> None:
        """Tell shards of which groups they are to keep filter bitmaps.

        A shard that is away is told the next time, and keeps others waiting for a while only.
        """
        with self._ordering:
            asked = [(order, _ask_to_keep(order)) for order in self._state.bitmap_orders()]
            calls = [call for _, of_topic in asked for call in of_topic]
            if calls:
                ray.wait(calls, num_returns=len(calls), timeout=EXPIRE_INTERVAL_S)
            for order, of_topic in asked:
                answers = None
                try:
                    if of_topic:
                        answers = ray.get(of_topic, timeout=0)
                except (RayActorError, RayTaskError, GetTimeoutError) as error:
                    _LOG.warning("topic %s: bitmaps wait: %s", order.topic.name, error)
                self._state.take_bitmaps(order, answers)

    def node_id(self) -> str:
        """The Ray node that this actor, and with it every shard, runs on."""
        return str(ray.get_runtime_context().get_node_id())

    def pid(self) -> int:
        """The process id, for tests that end it."""
        return os.getpid()

    def stop(self) -> None:
        """Save the offsets, then stop every shard: all they hold is on disk when this returns."""
        self._stop.set()
        with contextlib.suppress(ShardUnavailableError):  # no member of another node ever came
            ray.get(find_actor(GATEWAY_NAME).stop.remote())
        self._state.stop()
        stop_shards(list(self._state.topics().values()))

    def _comes_or_goes(self, name: str) -> threading.Lock:
        """Held while a topic's shards start or stop: one that is made anew waits for the old one."""
        return self._coming_or_going[java_hash_code(name) % _TOPIC_LOCKS]

    def _start_shards(self, topics: list[TopicConfig]) -> None:
        start_shards(self._data, topics, self._shard_sizes)


def _ask_to_keep(order: BitmapOrder) -> list[Any]:
    """The calls that tell a topic's shards; none when one of them is away."""
    try:
        return [shard.ask("keep_bitmaps", order.living) for shard in shards_of(order.topic)]
    except ShardUnavailableError as error:
        _LOG.warning("topic %s: bitmaps wait: %s", order.topic.name, error)
        return []
