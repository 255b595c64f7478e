"""One instance of an app as a member of one group, on all its topics at once.

Where a :class:`~.member.GroupConsumer` owns the way of its messages too, this is membership
alone: which queues the instance may read, how far it came in them, and when it has to give some
up. Whoever reads them hears that it changed, stops what has to stop, and calls ``adopt``.

Invariants
  1. A queue that was adopted is reported as held until the next ``adopt``, which the app calls
     when it has finished and committed what it had of it.
  2. Commits go out with a heartbeat, the last ones not later than the heartbeat that no longer
     names their queue. A coordinator that says less than was told to one before it is told again.
  3. Heartbeats have a thread of their own: an app that is busy keeps its queues.
  4. Once the lease ran out (lease.py), nothing may be handed out before the next ``adopt``: what
     was held may have been another's meanwhile. Commits wait then until the coordinator said how
     far the group is, and those below that are dropped.
"""

from __future__ import annotations

import itertools
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from rocketray.actors.groups.heartbeat import AppInstance, Heartbeat, HeartbeatReply
from rocketray.actors.groups.lease import Lease
from rocketray.actors.groups.member_options import StartFrom
from rocketray.actors.runtime.clock import steady_clock_ms
from rocketray.actors.topics.log_reader import Queue
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription

from .member import HEARTBEAT_INTERVAL_S
from .start_offset import next_begin

__all__ = ["AppGroups", "AppMember"]

_LOG = logging.getLogger(__name__)
_EVERYTHING = Subscription.tags("*")  # positions are dense: what reads them has no filter
_QUICK_INTERVAL_S = 0.1
_QUICK_BEATS = 20  # two seconds: queues are changing hands, and somebody waits for them


class AppGroups(Protocol):
    """The calls that a member needs."""

    def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Report to the coordinator."""

    def leave(self, beat: Heartbeat) -> None:
        """Give everything up."""


class AppMember:
    """Any thread may call it."""

    def __init__(
        self,
        groups: AppGroups,
        group: str,
        client_id: str,
        bounds: Callable[[Queue], tuple[int, int]],
        *,
        start: StartFrom = "earliest",
        on_change: Callable[[], None],
        on_failure: Callable[[Exception], None],
        clock_ms: Callable[[], int] = steady_clock_ms,
    ) -> None:
        """*on_change* and *on_failure* are called in the heartbeat's thread.

        *clock_ms* is one that never jumps.
        """
        self._groups = groups
        self._group = group
        self._client_id = client_id
        self._instance = uuid.uuid4().hex
        self._together = AppInstance(group, self._instance)
        self._bounds = bounds
        self._start = start
        self._on_change = on_change
        self._on_failure = on_failure
        self._lock = threading.RLock()
        self._beating = threading.Lock()  # reports leave in the order in which they are made
        self._topics: tuple[str, ...] = ()
        self._granted: dict[Queue, int] = {}
        self._held: dict[Queue, int] = {}
        self._commits: dict[Queue, int] = {}
        self._starts: dict[Queue, int] = {}
        self._numbers = itertools.count(1)
        self._quick_beats = 0
        self._lease = Lease(clock_ms, f"app {group}")
        self._has_lapsed = False  # the lease ran out since the last ``adopt``
        self._wanted = threading.Event()
        self._closed = threading.Event()
        self._heart = threading.Thread(target=self._keep_beating, daemon=True, name="heartbeat")

    def subscribe(self, topics: Iterable[str]) -> None:
        """Be a member on *topics* too, until the end; the first call begins the heartbeats."""
        with self._lock:
            self._topics = tuple(sorted({*self._topics, *topics}))
            self._quick_beats = _QUICK_BEATS
        self.beat()
        if not self._heart.is_alive():
            self._heart.start()

    def has_changed(self) -> bool:
        """Whether what is granted differs from what was adopted, or was not sure for a while."""
        with self._lock:
            return self._has_lapsed or self._granted.keys() != self._held.keys()

    def may_hand_out(self) -> bool:
        """Whether nobody else can have been given what is held; once False, until ``adopt``."""
        with self._lock:
            self._has_lapsed |= not self._lease.may_hand_out()
            return not self._has_lapsed

    def adopt(self) -> dict[Queue, int]:
        """Give back what is no longer granted and take what is; next queue offsets by queue.

        Call it when nothing of what was held is worked on any more.
        """
        with self._lock:
            self._tell_again(self._held.keys() - self._granted.keys())
            self._held = {
                queue: self._held[queue] for queue in self._held.keys() & self._granted.keys()
            }
            self._quick_beats = _QUICK_BEATS
        self.beat()
        with self._lock:
            self._has_lapsed = False
            self._held = {
                queue: max(self._held[queue], offset)  # another may have had it without a lease
                if queue in self._held
                else self._first_offset(queue, offset)
                for queue, offset in self._granted.items()
            }
            return dict(self._held)

    def holds_any(self) -> bool:
        """Whether anything was adopted."""
        with self._lock:
            return bool(self._held)

    def committed(self, queue: Queue) -> int:
        """The next queue offset of a queue that is held."""
        with self._lock:
            return self._held[queue]

    def commit(self, offsets: Mapping[Queue, int]) -> None:
        """Say that everything below the offsets is finished; of queues that are not held: no."""
        with self._lock:
            mine = {
                queue: offset
                for queue, offset in offsets.items()
                if queue in self._held and not self._is_outdated(queue, offset)
            }
            self._held.update(mine)
            self._commits.update(mine)
        self._wanted.set()

    def beat(self) -> None:
        """Report for all topics once, and hear what is granted.

        Raises:
            ShardUnavailableError: the coordinator is away; nothing is lost.
            StreamError: it refuses the member.
        """
        with self._beating:
            asked_ms = self._lease.asked_at()
            with self._lock:
                is_unsure = bool(self._held) and not self._lease.is_running
                self._has_lapsed |= is_unsure
            for topic in self._topics:
                beat = self._report(topic, with_commits=not is_unsure)
                try:
                    reply = self._groups.heartbeat(beat)
                except (ShardUnavailableError, OSError):
                    with self._lock:
                        late = {(topic, queue): at for queue, at in beat.commits.items()}
                        self._commits = {**late, **self._commits}
                    raise
                with self._lock:
                    others = {key: at for key, at in self._granted.items() if key[0] != topic}
                    fresh = {(topic, queue): at for queue, at in reply.granted.items()}
                    self._granted = {**others, **fresh}
                    behind = {key for key, at in fresh.items() if at < self._held.get(key, at)}
                    self._tell_again(behind)
            with self._lock:
                self._has_lapsed |= bool(self._held) and not self._lease.is_running
                self._commits = {
                    queue: offset
                    for queue, offset in self._commits.items()
                    if not self._is_outdated(queue, offset)
                }
                self._lease.renew(asked_ms)

    def close(self) -> None:
        """Send the last commits and leave the group."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._wanted.set()
        if self._heart.is_alive():
            self._heart.join()
        with self._lock:
            self._tell_again(self._held)
            reports = [self._report(topic) for topic in self._topics]
            self._held, self._granted = {}, {}
        try:
            for report in reports:
                self._groups.leave(report)
        except (StreamError, OSError) as error:
            _LOG.warning("the last commits were not told, so their messages come again: %s", error)

    def _tell_again(self, queues: Iterable[Queue]) -> None:
        """A coordinator that started again may not know how far these are, which are held."""
        if not self._has_lapsed:
            self._commits = {queue: self._held[queue] for queue in queues} | self._commits

    def _is_outdated(self, queue: Queue, offset: int) -> bool:
        """Another may have had the queue without this one's knowing, and come further."""
        return self._has_lapsed and offset < self._granted.get(queue, offset)

    def _report(self, topic: str, *, with_commits: bool = True) -> Heartbeat:
        with self._lock:
            held = {queue for name, queue in (*self._held, *self._granted) if name == topic}
            mine = {queue for queue in self._commits if with_commits and queue[0] == topic}
            commits = {queue[1]: self._commits.pop(queue) for queue in mine}
            starts = {queue: at for (name, queue), at in self._starts.items() if name == topic}
        return Heartbeat(
            group=self._group,
            topic=topic,
            subscription=_EVERYTHING,
            member=self._client_id,
            instance=self._instance,
            held=frozenset(held),
            commits=commits,
            starts=starts,
            together=self._together,
            number=next(self._numbers),
        )

    def _first_offset(self, queue: Queue, offset: int) -> int:
        """Where to begin: at the group's offset, as far as that is still there."""
        minimum, visible = self._bounds(queue)
        if offset < 0:
            first = minimum if self._start == "earliest" else visible
            self._commits[queue] = self._starts[queue] = first
            return first
        begin = next_begin(offset, minimum, visible)
        begin.log(self._group, *queue, offset)
        if begin.illegal is not None:
            self._commits[queue] = begin.queue_offset
        return begin.queue_offset

    def _keep_beating(self) -> None:
        while not self._closed.is_set():
            quick = self._quick_beats > 0
            self._quick_beats -= quick
            self._wanted.wait(_QUICK_INTERVAL_S if quick else HEARTBEAT_INTERVAL_S)
            self._wanted.clear()
            if self._closed.is_set():
                return
            try:
                self.beat()
            except (ShardUnavailableError, OSError) as error:
                _LOG.warning("the coordinator does not answer, trying again: %s", error)
                self._closed.wait(HEARTBEAT_INTERVAL_S)
            except StreamError as error:
                self._on_failure(error)
                return
            if self.has_changed():
                self._on_change()
