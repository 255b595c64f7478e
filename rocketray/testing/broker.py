"""The node for users' tests: stepped, with a clock that the test advances, and faults on request.

A call that changes something completes all consequences before it returns: a message that was sent
is stored, filtered and waiting at its member. Time passes only by :meth:`Clock.advance`, which does
everything due, in order: heartbeats, saved offsets, expired files. The only threads are those of
code that blocks: an app's feeds, and predicates.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from rocketray.actors.filtering.engine import FilterEngine
from rocketray.actors.filtering.filter_api import FilterApi
from rocketray.actors.filtering.filter_rules import FilterRules
from rocketray.actors.groups.lease import SESSION_TIMEOUT_MS
from rocketray.actors.groups.member_options import MemberOptions
from rocketray.actors.ipc.ring import Ack
from rocketray.actors.producers.async_producer import AsyncProducer
from rocketray.actors.producers.producer import Producer
from rocketray.actors.producers.producer_options import ProducerOptions
from rocketray.actors.topics.catalog import SHARED_PROCESS, TopicConfig
from rocketray.filters.subscription import Subscription
from rocketray.store.retention import DiskUse
from rocketray.transaction import END_TOPIC, Decision, Verdict

from .clock import Clock
from .gate import Gate
from .member import Member
from .node import EMPTY_DISK, LocalNode

__all__ = ["Broker"]

_FULL_DISK = DiskUse(used=99 << 20, free=1 << 20)
_SIZES = {
    "commit_log_segment_bytes": 8 << 20,  # a message of the greatest allowed size, and little more
    "consume_queue_segment_entries": 10_000,
    "index_hash_slots": 1_000,
    "index_entries": 4_000,
}
_BEAT_MS = 1_000
_RESTLESS_MS = SESSION_TIMEOUT_MS + 5 * _BEAT_MS  # then all revoked queues have been reassigned
_SAVE_MS = 5_000
_EXPIRE_MS = 10_000
_COMMIT_S = 0.5  # longer than a commit that waits for nothing
_IDLE_MS = 60_000  # while no member comes or goes, leases stand still and tasks run this rarely
_LOOK_MS = 1_000  # the delay until services notice that the clock was set


class Broker(LocalNode):
    """A node in this process. Give it to an app: ``App("shop", connection=broker)``."""

    def __init__(
        self,
        data: Path | None = None,
        *,
        clock: Clock | None = None,
        predicates: Sequence[str] = (),
    ) -> None:
        """Start on *data*, or on a temporary directory that is removed with the broker.

        *predicates* are the modules from which groups may name class filters.
        """
        self.clock = clock or Clock()
        self._is_temporary = data is None
        self._lock = threading.RLock()
        self._is_stepping = False
        self._gates: dict[tuple[str, int], Gate] = {}
        self._members: list[Member] = []
        self._apps: list[Any] = []
        self._commits: dict[Any, asyncio.Task[Any]] = {}  # commits that outlasted one settling
        self._restless_until_ms = self.clock()
        self._has_more = False
        self._serving = _PeriodicTask(self.clock(), self._serve_in_time)
        self._tasks = [
            _PeriodicTask(self.clock() + _BEAT_MS, self._beat),
            _PeriodicTask(self.clock() + _SAVE_MS, self._save),
            _PeriodicTask(self.clock() + _EXPIRE_MS, self._expire),
            self._serving,
        ]
        super().__init__(
            data or Path(tempfile.mkdtemp(prefix="rocketray-")),
            _SIZES,
            self.clock,
            FilterRules(allowed=tuple(predicates)),
            self.clock.steady,
        )
        self.clock.follow(self)

    # The calls of producers, members and apps

    def is_local(self, topic: str, queue_id: int) -> bool:  # noqa: ARG002 - of the protocol
        """Return False: producers call the shards, and their batches are stored at return."""
        return False

    def producer(self, **options: Unpack[ProducerOptions]) -> Producer:
        """Return a producer; the options are those of ``ProducerOptions``."""
        return Producer(self, clock_ms=self.clock, **options)

    def async_producer(self, **options: Unpack[ProducerOptions]) -> AsyncProducer:
        """Return a producer for tasks; the options are those of ``ProducerOptions``."""
        return AsyncProducer(partial(self.producer, **options))

    def consumer(
        self, group: str, topic: str, subscription: Subscription, **options: Unpack[MemberOptions]
    ) -> Member:
        """Return a new member of *group*; the options are those of ``MemberOptions``."""
        self._restless()
        member = Member(
            self,
            group,
            topic,
            subscription,
            step=self.step,
            clock_ms=self.clock.steady,
            **options,
        )
        self._members.append(member)
        return member

    def gate(self, topic: str, queue_id: int) -> Gate:
        """Return the calls of a shard."""
        key = topic, queue_id
        if key not in self._gates:
            append = partial(self._append, key)
            self._gates[key] = Gate(f"{topic}/{queue_id}", append)
        return self._gates[key]

    def decide_transaction(self, wanted: Decision, *, to_disk: bool) -> Verdict:
        """Decide by a call, with the faults that the test set for the topic of decisions."""
        decide = partial(super().decide_transaction, wanted, to_disk=to_disk)
        with self._lock:
            try:
                return self.gate(END_TOPIC, 0).call(decide)
            finally:
                self._stored()

    def filter_calls(self) -> FilterApi:
        """Return the filter, which fills a match ring at once as far as it can."""
        return _SteppedFilter(self.filter, self.step)

    # Time

    def step(self) -> None:
        """Run services and filter until they have nothing to do; every change ends with it."""
        with self._lock:
            if not self._is_stepping:
                self._is_stepping = True
                try:
                    self._serve()
                    self.filter.step_to_the_end()
                finally:
                    self._is_stepping = False

    def pass_time(self, until_ms: int) -> None:
        """See :meth:`Clock.advance`."""
        with self._lock:
            while (task := min(self._tasks, key=lambda task: task.next_ms)).is_due(until_ms):
                self._go_to(max(task.next_ms, self.clock()))
                task.next_ms = self.clock() + task.run()
            self._go_to(until_ms)
            if not self._is_restless():
                for task in self._tasks[:3]:
                    task.run()
            self.step()

    def jump(self, by_ms: int) -> None:
        """See :meth:`Clock.jump`."""
        for task in self._tasks:
            task.next_ms += by_ms
        self._restless_until_ms += by_ms
        self._serving.next_ms = min(self._serving.next_ms, self.clock() + _LOOK_MS)

    def members(self, group: str | None = None) -> list[Member]:
        """Return the living members, of one group or of all, in the order in which they joined."""
        self._members = [member for member in self._members if member.is_alive]
        return [member for member in self._members if group in (None, member.group)]

    # Apps

    @asynccontextmanager
    async def running(self, app: Any) -> AsyncIterator[Any]:
        """Start *app*, and stop it at the end of the block."""
        await app.start()
        self._apps.append(app)
        try:
            yield app
        finally:
            self._apps.remove(app)
            await app.stop()

    async def settle(self, timeout_s: float = 10.0) -> None:
        """Wait until the apps have finished and committed all their messages.

        Raises:
            TimeoutError: they have not within *timeout_s* seconds of real time; it names the first
                queue that is not finished.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while unfinished := await self._unfinished(deadline):
            if loop.time() >= deadline:
                raise TimeoutError(f"not finished within {timeout_s:g} s: {unfinished}")
            await asyncio.sleep(0.001)

    # Results

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the group's next offset in each queue of *topic*; -1 if it has none."""
        self._beat()
        queues = range(self.topic(topic).queues)
        return {queue: self.state.registry.offsets.get(group, topic, queue) for queue in queues}

    def lag_of(self, group: str) -> int:
        """Return how many messages that match its filters the group has not finished."""
        self._beat()
        found = [description for description in self.groups.all() if description.group == group]
        return sum(
            lag.count for description in found for lag in self.filters.lag(description).values()
        )

    # Faults

    def fail_appends(self, count: int, topic: str, queue_id: int = 0) -> None:
        """Refuse the next *count* batches for a queue, as after a disk error."""
        self.gate(topic, queue_id).failing = count

    def lose_acks(self, count: int, topic: str, queue_id: int = 0) -> None:
        """Store the next *count* batches for a queue, and lose their acknowledgements."""
        self.gate(topic, queue_id).losing_acks = count

    @contextmanager
    def shard_down(self, topic: str, queue_id: int = 0) -> Iterator[None]:
        """Make a shard unavailable for the block; it recovers its store at the end."""
        gate = self.gate(topic, queue_id)
        gate.is_down = True
        try:
            yield
        finally:
            self.restart_shard(topic, queue_id)
            gate.is_down = False

    def restart_shard(self, topic: str, queue_id: int = 0) -> None:
        """Restart the process of a shard, with its other shards and the services that it runs."""
        with self._lock:
            config = self.topic(topic)
            name = config.process_of(queue_id)
            if name == SHARED_PROCESS and "services" in vars(self):
                self.services.close()
                del self.services
            self.end_process(name)
            self.open_shards(config, range(config.queues))
            self._stored()

    @contextmanager
    def disk_full(self) -> Iterator[None]:
        """Let all shards refuse messages for the block, as on a full disk."""
        self._watch_disk(_FULL_DISK)
        try:
            yield
        finally:
            self._watch_disk(EMPTY_DISK)

    def restart_filter(self) -> None:
        """Restart the filter; it resumes the streams where the old one stopped."""
        with self._lock:
            self.filter.close()
            self.filter = FilterEngine(self.data, self.rules)
            self.filter.attach_all()
            self.step()

    def restart_coordinator(self) -> None:
        """Restart the coordinator; it loses reports since it last saved offsets."""
        with self._lock:
            self.load_state()
            self._restless()

    def crash(self, member: Member) -> None:
        """End a member like a killed process: its group does not notice for ten seconds.

        Its uncommitted messages are redelivered to another member.
        """
        with self._lock:
            member.crash()
            self.step()
            self._restless()

    def silence(self, member: Member, *, seconds: float) -> None:
        """Drop the heartbeats of a member for that time, without its knowledge."""
        member.silent_until_ms = self.clock() + round(1000 * seconds)
        self._restless()
        self._restless_until_ms = max(
            self._restless_until_ms, member.silent_until_ms + _RESTLESS_MS
        )

    def close(self) -> None:
        """Close it, and remove its directory if that is a temporary one."""
        self.clock.unfollow(self)
        super().close()
        if self._is_temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def _beat(self) -> int:
        for member in self.members():
            if member.silent_until_ms <= self.clock():
                member.beat()
            if member.is_moving:
                self._restless()
        return _BEAT_MS if self._is_restless() else _IDLE_MS

    def _save(self) -> int:
        self.state.save()
        return _SAVE_MS if self._is_restless() else _IDLE_MS

    def _expire(self) -> int:
        self.expire()
        return _EXPIRE_MS if self._is_restless() else _IDLE_MS

    def _is_restless(self) -> bool:
        return self.clock() < self._restless_until_ms

    def _go_to(self, now_ms: int) -> None:
        self.clock.set(now_ms, is_steady=self._is_restless())

    def _restless(self) -> None:
        """Beat often for a while: members come or go, or queues are reassigned."""
        self._restless_until_ms = max(self._restless_until_ms, self.clock() + _RESTLESS_MS)
        for task, soon_ms in zip(self._tasks, (_BEAT_MS, _SAVE_MS, _EXPIRE_MS), strict=False):
            task.next_ms = min(task.next_ms, self.clock() + soon_ms)

    def _watch_disk(self, disk: DiskUse) -> None:
        self.disk = disk
        for topic in self.topics.all():
            for shard in self.shards_of(topic):
                shard.writer.watch_disk(disk)

    async def _unfinished(self, deadline: float) -> str:
        """Return the position of the first app with unfinished work, in words."""
        for app in self._apps:
            if app.crash_reason is not None:
                raise app.crash_reason
            if not await self._commit(app, deadline):
                return "messages sent by an app are not stored"
        with self._lock:
            self._beat()
            self.step()
            of_apps = [member for member in self.members() if member.on_revoke is not None]
            return next(filter(None, (each.unfinished(self._visible) for each in of_apps)), "")

    async def _commit(self, app: Any, deadline: float) -> bool:
        """Have *app* commit; False if it still waits for its sends at the *deadline*.

        A commit that began shortly before still gets its time: it does not wait for sends.
        """
        task = self._commits.get(app) or asyncio.create_task(app.consumer.force_commit())
        left_s = deadline - asyncio.get_running_loop().time()
        done, _ = await asyncio.wait({task}, timeout=max(_COMMIT_S, left_s))
        if done:
            self._commits.pop(app, None)
        else:
            self._commits[app] = task  # not cancelled: its offsets to commit would be lost
        return bool(done)

    def _visible(self, topic: str, queue_id: int) -> int:
        return self.shard(topic, queue_id).writer.control.visible()

    def open_shards(self, topic: TopicConfig, queues: range) -> None:
        """Open the shards of queues of a topic; leave those alone that are open."""
        super().open_shards(topic, queues)
        self._restless()
        for queue_id in queues:
            self.shard(topic.name, queue_id).writer.watch_disk(self.disk)

    def _append(self, key: tuple[str, int], payload: bytes, durability: int, attempt: int) -> Ack:
        """Store a batch in the current shard: it may have been restarted."""
        with self._lock:
            ack = self.shard(*key).append(payload, durability, attempt=attempt)
            self._stored()
            return ack

    def _stored(self) -> None:
        """Run services and filter after a shard got new data."""
        with self._lock:
            self._has_more = True
            self.step()

    def _serve(self) -> None:
        """Run the services that are due, and their consequences."""
        while self._has_more:
            self._has_more = False
            wakeup_ms = self.clock() + _IDLE_MS
            if SHARED_PROCESS in self.processes:
                wakeup_ms = self.services.step(self.clock())
            self._serving.next_ms = max(wakeup_ms, self.clock() + 1)

    def _serve_in_time(self) -> int:
        self._stored()
        return max(self._serving.next_ms - self.clock(), 1)


class _SteppedFilter:
    """The calls of a filter whose streams are served at once."""

    def __init__(self, engine: FilterEngine, step: Callable[[], None]) -> None:
        self._engine = engine
        self._step = step
        self.lag = engine.lag
        self.ask_predicate = engine.ask_predicate
        self.statistics = engine.statistics

    def attach(self, path: str) -> None:
        self._engine.attach(path)
        self._step()


class _PeriodicTask:
    """A periodic task, which returns the time until its next run."""

    def __init__(self, next_ms: int, run: Callable[[], int]) -> None:
        self.next_ms = next_ms
        self.run = run

    def is_due(self, now_ms: int) -> bool:
        return self.next_ms <= now_ms
