"""A node that is stepped: each change has all its consequences before the call returns.

Time passes only by :meth:`Clock.advance`, which does everything due, in order: heartbeats, saved
offsets, expired files. While no member comes or goes, leases stand still and tasks run rarely.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from rocketray.base.system_topics import END_TOPIC
from rocketray.broker.filtering.filter_api import FilterApi
from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.shards.owned_shard import OwnedShard
from rocketray.broker.shards.shard_api import ShardApi
from rocketray.broker.topics.process_names import SHARED_PROCESS
from rocketray.errors import ShardUnavailableError
from rocketray.groups.lease import SESSION_TIMEOUT_MS
from rocketray.messaging.api.system_api import TransactionsApi
from rocketray.runtime.calls.endpoint import Endpoint
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.store.age_clock import AgeClock

from .clock import Clock
from .member import Member
from .node import EMPTY_DISK, LocalNode

_SIZES = {
    "commit_log_segment_bytes": 8 << 20,  # a message of the greatest allowed size, and little more
    "consume_queue_segment_entries": 10_000,
    "index_hash_slots": 1_000,
    "index_entries": 4_000,
}
_BEAT_MS = 1_000  # this and the next two are the intervals of a real node
_RESTLESS_MS = SESSION_TIMEOUT_MS + 5 * _BEAT_MS  # then all revoked queues have been reassigned
_SAVE_MS = 5_000
_EXPIRE_MS = 10_000
_IDLE_MS = 60_000  # while no member comes or goes, leases stand still and tasks run this rarely
_LOOK_MS = 1_000  # the delay until services notice that the clock was set
_RETRY_AFTER_MS = 1  # of real time, so that no test waits long


@dataclass(slots=True)
class QueueFaults:
    """The faults of a shard: whether it is down, and how many of the next batches fail."""

    is_down: bool = False
    failing: int = 0
    """Number of following batches to refuse, as after a disk error."""
    losing_acks: int = 0
    """Number of following batches to store without an acknowledgement."""


class SteppedNode:
    """A node, its members, and the steps that a clock makes."""

    def __init__(self, data: Path, clock: Clock, rules: FilterRules) -> None:
        self.clock = clock
        # Reentrant: a step makes calls of the node, which take it, too.
        self.lock = threading.RLock()
        self.faults: defaultdict[tuple[str, int], QueueFaults] = defaultdict(QueueFaults)
        """The faults that the test set, by topic and queue."""
        self.disk = EMPTY_DISK
        """How full all disks are."""
        self._is_stepping = False
        self._members: list[Member] = []
        self._restless_until_ms = clock()
        self._has_more = False
        self._serving = _PeriodicTask(clock(), self._serve_in_time)
        self._tasks = [
            _PeriodicTask(clock() + _BEAT_MS, self.beat),
            _PeriodicTask(clock() + _SAVE_MS, self._save),
            _PeriodicTask(clock() + _EXPIRE_MS, self._expire),
            self._serving,
        ]
        self.node = LocalNode(
            data,
            _SIZES,
            AgeClock(clock, clock.elapsed),
            rules,
            clock.steady,
            around=self._call,
            on_open=self._opened,
        )
        self.node.calls.shares_memory = False  # so that a batch is stored when its call returns
        clock.follow(self)

    def step(self) -> None:
        """Run services and filter until they have nothing to do; every change ends with it."""
        with self.lock:
            if not self._is_stepping:
                self._is_stepping = True
                try:
                    self._serve()
                    self.node.filter.step_to_the_end()
                finally:
                    self._is_stepping = False

    def stored(self) -> None:
        """Run services and filter after a shard got new data."""
        with self.lock:
            self._has_more = True
            self.step()

    def pass_time(self, until_ms: int) -> None:
        with self.lock:
            while (task := min(self._tasks, key=attrgetter("next_ms"))).next_ms <= until_ms:
                self._go_to(max(task.next_ms, self.clock()))
                task.next_ms = self.clock() + task.run()
            self._go_to(until_ms)
            if not self._is_restless():
                # The beats, saves and expiries, which ran rarely on the way; services were run in
                # time.
                for task in self._tasks[:3]:
                    task.run()
            self.step()

    def jump(self, by_ms: int) -> None:
        for task in self._tasks:
            task.next_ms += by_ms
        self._restless_until_ms += by_ms
        self._serving.next_ms = min(self._serving.next_ms, self.clock() + _LOOK_MS)

    def join(self, make: Callable[[], Member]) -> Member:
        """Return a new member, which sends its heartbeats when the clock advances."""
        self.restless()
        member = make()  # its first heartbeat may end others
        self._members.append(member)
        return member

    def members(self, group: str | None = None) -> list[Member]:
        """Return the living members, of one group or of all, in the order in which they joined."""
        self._members = [member for member in self._members if member.is_alive]
        return [member for member in self._members if group in (None, member.group)]

    def beat(self) -> int:
        """Send the heartbeats of all members; return when to send the next ones."""
        for member in self.members():
            if member.silent_until_ms <= self.clock():
                member.beat()
            if member.is_moving:
                self.restless()
        return self._every(_BEAT_MS)

    def restless(self, since_ms: int | None = None) -> None:
        """Beat often for a while: members come or go, or queues are reassigned."""
        since_ms = self.clock() if since_ms is None else since_ms
        self._restless_until_ms = max(self._restless_until_ms, since_ms + _RESTLESS_MS)
        for task, soon_ms in zip(self._tasks, (_BEAT_MS, _SAVE_MS, _EXPIRE_MS), strict=False):
            task.next_ms = min(task.next_ms, self.clock() + soon_ms)

    def close(self) -> None:
        """Bring everything to disk and release the directory."""
        self.clock.unfollow(self)
        self.node.close()

    def _call(self, endpoint: Endpoint[Any], method: str, run: Callable[[], Any]) -> Any:
        """Run a call, with all its consequences and the faults that the test set."""
        interface = endpoint.interface
        if interface is ShardApi and method in ("append", "append_staged"):
            return self._store(endpoint.key, run, Ack(AppendStatus.FAILED))
        if interface is TransactionsApi and method == "decide":
            return self._store((END_TOPIC, 0), run, None)
        result = run()
        if interface is FilterApi and method == "attach_ring":
            self.step()
        return result

    def _store(self, place: tuple[Any, ...], run: Callable[[], Any], refused: Ack | None) -> Any:
        """Run a call that stores a batch, with the faults of the queue *place*."""
        topic, queue_id = place
        faults = self.faults[topic, queue_id]

        def unavailable(reason: str) -> ShardUnavailableError:
            said = f"{reason}, as the test asked"
            return ShardUnavailableError(f"shard {topic}/{queue_id}", said, _RETRY_AFTER_MS)

        if faults.is_down:
            raise unavailable("it is down")
        if faults.failing:
            faults.failing -= 1
            if refused is not None:
                return refused
            raise unavailable("it could not store the batch")
        with self.lock:
            try:
                result = run()
            finally:
                self.stored()
        if faults.losing_acks:
            faults.losing_acks -= 1
            raise unavailable("its reply was lost")
        return result

    def _opened(self, shard: OwnedShard) -> None:
        self.restless()
        shard.writer.watch_disk(self.disk)

    def _save(self) -> int:
        self.node.state.save()
        return self._every(_SAVE_MS)

    def _expire(self) -> int:
        self.node.expire(self.disk)
        return self._every(_EXPIRE_MS)

    def _every(self, interval_ms: int) -> int:
        return interval_ms if self._is_restless() else _IDLE_MS

    def _is_restless(self) -> bool:
        return self.clock() < self._restless_until_ms

    def _go_to(self, now_ms: int) -> None:
        self.clock.set(now_ms, is_steady=self._is_restless())

    def _serve(self) -> None:
        while self._has_more:
            self._has_more = False
            wakeup_ms = self.clock() + _IDLE_MS
            if SHARED_PROCESS in self.node.processes:
                wakeup_ms = self.node.services.step(self.clock())
            wakeup_ms = min(wakeup_ms, self.node.staging.step(self.clock()) or wakeup_ms)
            # Later than now, or the clock would never advance past a service that is always due.
            self._serving.next_ms = max(wakeup_ms, self.clock() + 1)

    def _serve_in_time(self) -> int:
        self.stored()
        return max(self._serving.next_ms - self.clock(), 1)


@dataclass(slots=True)
class _PeriodicTask:
    """A periodic task, which returns the time until its next run."""

    next_ms: int
    run: Callable[[], int]
