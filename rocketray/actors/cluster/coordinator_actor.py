"""The coordinator: the Ray shell of ``ClusterState`` (cluster_state.py).

It starts the shard processes, saves offsets every ``OFFSETS_INTERVAL_S`` and at the stop, and has old
files removed. Ray restarts a coordinator that died; it loads its state, and members join again with
their next heartbeat and report their offsets. So a message is redelivered only if its reader died,
too, between its commit and the next save; nothing is lost.

Calls that wait for other actors have threads of their own (``WAITING_GROUP``): however many topics
are slow to start, heartbeats are answered at once, and no member's session ends meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from rocketray.actors.client.actor_names import GATEWAY_NAME, find_actor
from rocketray.actors.client.shard_calls import ShardCalls, shards_of
from rocketray.actors.files.home import Home
from rocketray.actors.filtering.bitmap_orders import BitmapOrder
from rocketray.actors.filtering.filter_rules import FilterRules
from rocketray.actors.groups.group_administration import GroupQuestion
from rocketray.actors.groups.group_descriptions import GroupDescription
from rocketray.actors.groups.heartbeat import Heartbeat, HeartbeatReply
from rocketray.actors.journal.group_journal import JournalEntry
from rocketray.actors.ray_process.ray_access import asks_for_token
from rocketray.actors.ray_process.ray_runtime import (
    GetTimeoutError,
    RayActorError,
    RayError,
    RayTaskError,
    ray,
)
from rocketray.actors.runtime.clock import steady_clock_ms, system_clock_ms
from rocketray.actors.runtime.periodic import start_periodic_task
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.actors.topics.placement import Placement
from rocketray.actors.topics.topic_start import Started
from rocketray.errors import ShardUnavailableError, StreamError, TopicNotFoundError
from rocketray.hashing import java_hash_code
from rocketray.names import QueuesPerProcess
from rocketray.store.retention import KEEP_ALL, RetentionPolicy

from .cluster_state import ClusterState
from .gateway_actor import GATEWAY_THREADS, GatewayActor
from .shard_start import closed_shards, remove_shards, start_actor, start_shards, stop_shards

__all__ = ["COORDINATOR_THREADS", "WAITING_GROUP", "CoordinatorActor"]

_LOG = logging.getLogger(__name__)
_Method = TypeVar("_Method", bound=Callable[..., Any])
COORDINATOR_THREADS = 16
WAITING_GROUP = {"waiting": 16}
"""Ray's concurrency group for the calls that wait for other actors: its name and threads."""
OFFSETS_INTERVAL_S = 5.0
EXPIRE_INTERVAL_S = 10.0
BITMAPS_INTERVAL_S = 2.0
CLOSED_INTERVAL_S = 2.0
_OPEN_RAY = (
    "Ray: it asks for no token, so any program that can reach its ports can run code as the node's "
    "user; unset RAY_AUTH_MODE, or start the cluster with RAY_AUTH_MODE=token"
)
_TOPIC_LOCKS = 64  # topics that share a lock only wait for each other


def _waits(method: _Method) -> _Method:
    """Run a method of the coordinator in the threads of ``WAITING_GROUP``."""
    [name] = WAITING_GROUP
    return cast("_Method", ray.method(concurrency_group=name)(method))


class CoordinatorActor:
    """The only actor that changes a cluster's state."""

    def __init__(
        self,
        home: Home,
        shard_sizes: dict[str, int],
        rules: FilterRules,
        queues_per_process: QueuesPerProcess = None,
    ) -> None:
        self._home = home
        self._data = home.directory()
        self._shard_sizes = shard_sizes
        placement = Placement(queues_per_process)
        self._state = ClusterState(self._data, rules, system_clock_ms, steady_clock_ms, placement)
        if not asks_for_token():
            self._state.problems.note("Ray", _OPEN_RAY)
        self._finish_deletions()
        self._start_shards(list(self._state.topics().values()))
        self._coming_or_going = [threading.Lock() for _ in range(_TOPIC_LOCKS)]
        self._state.begin_to_listen()  # the shards' restart took time
        self._stop = threading.Event()
        self._ordering = threading.Lock()
        start_periodic_task(
            "saving offsets and filters", OFFSETS_INTERVAL_S, self._stop, self._state.save
        )
        start_periodic_task("removing old files", EXPIRE_INTERVAL_S, self._stop, self.expire)
        start_periodic_task(
            "looking for closed shards", CLOSED_INTERVAL_S, self._stop, self.note_closed
        )
        every_s, order = BITMAPS_INTERVAL_S, self.order_bitmaps
        start_periodic_task("requesting bitmaps", every_s, self._stop, order, at_once=True)

    @_waits
    def create_topic(
        self,
        name: str,
        queues: int,
        retention: RetentionPolicy = KEEP_ALL,
        *,
        internal: bool = False,
        queues_per_process: QueuesPerProcess = None,
    ) -> TopicConfig:
        """Save the topic, or its new queues; :meth:`start_queues` starts them."""
        with self._comes_or_goes(name):
            for deleted in self._state.deleted_topics():
                if deleted.name == name:
                    self._remove(deleted)
            return self._state.create_topic(
                name, queues, retention, internal=internal, queues_per_process=queues_per_process
            )

    @_waits
    def start_queues(self, name: str, topic_id: str, queues: range, wait_s: float) -> Started:
        """Start queues of a topic; return when they answer, or after *wait_s*.

        Running queues are left alone, so the call can be repeated.

        Raises:
            TopicNotFoundError: the topic is gone, also if another one has its name by now.
        """
        with self._comes_or_goes(name):
            topic = self._state.topic(name)
            if topic.topic_id != topic_id:
                raise TopicNotFoundError(name)
            return self._start_shards([topic], queues, wait_s)

    @_waits
    def set_permission(self, name: str, perm: int) -> TopicConfig:
        """Allow writing (2), reading (4) or both (6)."""
        topic = self._state.set_permission(name, perm)
        ray.get([shard.ask("set_writable", topic.writable) for shard in shards_of(topic)])
        return topic

    def set_retention(self, name: str, retention: RetentionPolicy) -> TopicConfig:
        """Set how long, or up to how many bytes, a topic's messages are kept, from now on."""
        return self._state.set_retention(name, retention)

    @_waits
    def set_bitmaps(self, name: str, mode: str) -> TopicConfig:
        """Keep filter bitmaps always (on), never (off), or where they pay (auto), from now on."""
        topic = self._state.set_bitmaps(name, mode)
        self.order_bitmaps()
        return topic

    @_waits
    def delete_topic(self, name: str) -> None:
        """Remove the topic and all its messages."""
        with self._comes_or_goes(name):
            self._remove(self._state.delete_topic(name))

    def problems(self) -> list[str]:
        """Return the problems of the node, a line each."""
        return self._state.problems.lines()

    def topics(self) -> dict[str, TopicConfig]:
        """Return all topics."""
        return self._state.topics()

    def topic(self, name: str) -> TopicConfig:
        """Return one topic; raise :class:`TopicNotFoundError`."""
        return self._state.topic(name)

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """See :meth:`ClusterState.heartbeat`."""
        return self._state.heartbeat(beat)

    def leave(self, beat: Heartbeat) -> None:
        """See :meth:`ClusterState.leave`."""
        self._state.leave(beat)

    def groups(self) -> list[GroupDescription]:
        """Return all groups, one entry a topic."""
        return self._state.groups()

    def journal(self, group: str) -> tuple[JournalEntry, ...]:
        """See :meth:`ClusterState.journal`."""
        return self._state.journal(group)

    def delete_group(self, group: str) -> None:
        """Remove a group and its offsets; it must have no members."""
        self._state.delete_group(group)

    def ask_groups(self, question: GroupQuestion, *arguments: Any) -> Any:
        """See :meth:`ClusterState.ask_groups`."""
        return self._state.ask_groups(question, *arguments)

    def expire(self) -> None:
        """Have every shard remove files beyond retention that no group needs (store/retention.py).

        A shard that is unavailable does so the next time.
        """
        asked = []
        for order in self._state.expiry_orders():
            shard = ShardCalls(order.topic, order.queue_id)
            try:
                answer = shard.ask("expire", order.policy, order.needed_from)
                asked.append((shard.name, answer))
            except ShardUnavailableError:
                _LOG.warning("%s is unavailable; its old files are removed later", shard.name)
        for name, answer in asked:
            try:
                ray.get(answer, timeout=EXPIRE_INTERVAL_S)
            except (RayActorError, RayTaskError, GetTimeoutError) as error:
                _LOG.warning("%s did not remove its old files: %s", name, error)

    def note_closed(self) -> None:
        """Note the shards that their processes have closed as problems, until they are open."""
        topics = self._state.topics().values()
        for place, reason in closed_shards(topics, CLOSED_INTERVAL_S).items():
            if reason is None:
                self._state.problems.resolve(f"queue {place}")
            else:
                self._state.problems.note(f"queue {place}", reason)

    @_waits
    def open_gateway(self) -> None:
        """Start the gateway; return when members on other nodes may join."""
        gateway = start_actor(GatewayActor, GATEWAY_NAME, GATEWAY_THREADS, self._home)
        ray.get(gateway.ready.remote())

    def order_bitmaps(self) -> None:
        """Tell shards for which groups they keep filter bitmaps.

        A shard that is unavailable is told the next time, and delays the others by a bounded time.
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
                    _LOG.warning("topic %s: bitmaps are set later: %s", order.topic.name, error)
                self._state.take_bitmaps(order, answers)

    def home(self) -> Home:
        """Return where every actor that uses the node's files has to run."""
        return self._home

    def node_id(self) -> str:
        """Return the Ray node that this actor, and with it every shard, runs on."""
        return str(ray.get_runtime_context().get_node_id())

    def pid(self) -> int:
        """Return the process id, by which the node finds what its raylet started (ray_watch.py)."""
        return os.getpid()

    def stop(self) -> None:
        """Save the offsets, then stop every shard: all their data is on disk on return."""
        self._stop.set()
        with contextlib.suppress(ShardUnavailableError):  # no member on another node ever joined
            ray.get(find_actor(GATEWAY_NAME).stop.remote())
        try:
            self._state.stop()
        finally:
            stop_shards(list(self._state.topics().values()))

    def _comes_or_goes(self, name: str) -> threading.Lock:
        """Return the lock of a topic's start and stop: a new topic waits for the old one's stop."""
        return self._coming_or_going[java_hash_code(name) % _TOPIC_LOCKS]

    def _remove(self, deleted: TopicConfig) -> None:
        """Stop the shards of a deleted topic, and remove its files."""
        try:
            remove_shards(deleted)
        finally:  # a shard that cannot be stopped finds no directory at its restart
            self._remove_files(deleted)

    def _remove_files(self, deleted: TopicConfig) -> None:
        """Remove the files of a deleted topic; files that stay are a problem until they go."""
        subject = f"deleted topic {deleted.name}"
        try:
            self._state.remove_files(deleted)
        except (StreamError, OSError) as error:
            line = f"files of the deleted topic {deleted.name} are not removed yet: {error}"
            self._state.problems.note(subject, line)
            raise
        self._state.problems.resolve(subject)

    def _finish_deletions(self) -> None:
        """Finish the deletions that an earlier coordinator did not complete before it died."""
        for deleted in self._state.deleted_topics():
            try:
                self._remove(deleted)
            except (StreamError, RayError, OSError) as error:
                if deleted not in self._state.deleted_topics():  # else it is noted already
                    _LOG.warning("shards of the deleted topic %s: %s", deleted.name, error)

    def _start_shards(
        self, topics: list[TopicConfig], queues: range | None = None, wait_s: float | None = None
    ) -> Started:
        """Start the shards; note why some stay closed, for ``rocketray status``."""
        started = start_shards(self._home, topics, self._shard_sizes, queues, wait_s)
        made: dict[str, list[int]] = {}
        for topic in topics:
            for queue_id in range(topic.queues) if queues is None else queues:
                name = f"{topic.name}/{queue_id}"
                if name in started.closed:
                    self._state.problems.note(f"queue {name}", str(started.closed[name]))
                elif name not in started.waiting:
                    self._state.problems.resolve(f"queue {name}")
                    made.setdefault(topic.name, []).append(queue_id)
        try:
            self._state.note_made(made)
        except OSError as error:  # such as a full disk: the shards run nevertheless
            _LOG.warning("which queues were created is recorded at the next start: %s", error)
        return started


def _ask_to_keep(order: BitmapOrder) -> list[Any]:
    """Return the calls that tell a topic's shards; none if one of them is unavailable."""
    try:
        return [shard.ask("keep_bitmaps", order.living) for shard in shards_of(order.topic)]
    except ShardUnavailableError as error:
        _LOG.warning("topic %s: bitmaps are set later: %s", order.topic.name, error)
        return []
