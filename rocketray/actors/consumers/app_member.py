"""One instance of an app as a member of one group, on all its topics at once.

A :class:`~.member.GroupConsumer` also delivers messages. This class is membership alone: the queues
that the instance may read, its commits, and revocations. The app's reader is notified of a change,
stops the affected work, and calls ``adopt``.

Invariants
  1. An adopted queue is reported as held until the next ``adopt``, which the app calls when it has
     finished and committed the queue's messages.
  2. Commits are sent with a heartbeat, the last ones not later than the heartbeat that no longer
     names their queue. Commits are repeated to a coordinator that reports lower offsets than an
     earlier one received.
  3. Heartbeats have a thread of their own: a busy app keeps its queues.
  4. After the lease expired (lease.py), nothing may be delivered before the next ``adopt``: another
     member may have owned the queues. Commits wait until the coordinator reports the group's
     offsets; those below them are dropped.
"""

from __future__ import annotations

import itertools
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping

from rocketray.actors.groups.groups_api import SessionsApi
from rocketray.actors.groups.heartbeat import AppInstance, Heartbeat
from rocketray.actors.groups.lease import Lease
from rocketray.actors.groups.member_options import StartFrom
from rocketray.actors.runtime.clock import steady_clock_ms
from rocketray.actors.topics.log_reader import Queue
from rocketray.errors import ShardUnavailableError, StreamError
from rocketray.filters.subscription import Subscription

from .member import HEARTBEAT_INTERVAL_S
from .start_offset import next_begin

__all__ = ["AppMember"]

_LOG = logging.getLogger(__name__)
_EVERYTHING = Subscription.tags("*")  # positions are dense: their readers have no filter
_QUICK_INTERVAL_S = 0.1
_QUICK_BEATS = 20  # two seconds: during a rebalance another member waits


class AppMember:
    """The membership of one app instance; any thread may call it."""

    def __init__(
        self,
        sessions: SessionsApi,
        group: str,
        client_id: str,
        bounds: Callable[[Queue], tuple[int, int]],
        *,
        start: StartFrom = "earliest",
        on_change: Callable[[], None],
        on_failure: Callable[[Exception], None],
        clock_ms: Callable[[], int] = steady_clock_ms,
    ) -> None:
        """Create it without topics.

        *on_change* and *on_failure* are called in the heartbeat thread. *clock_ms* is monotonic.
        """
        self._sessions = sessions
        self._group = group
        self._client_id = client_id
        self._instance = uuid.uuid4().hex
        self._together = AppInstance(group, self._instance)
        self._bounds = bounds
        self._start = start
        self._on_change = on_change
        self._on_failure = on_failure
        self._lock = threading.RLock()
        self._beating = threading.Lock()  # reports are sent in the order in which they are created
        self._topics: tuple[str, ...] = ()
        self._granted: dict[Queue, int] = {}
        self._held: dict[Queue, int] = {}
        self._commits: dict[Queue, int] = {}
        self._starts: dict[Queue, int] = {}
        self._numbers = itertools.count(1)
        self._quick_beats = 0
        self._lease = Lease(clock_ms, f"app {group}")
        self._has_lapsed = False  # the lease expired since the last ``adopt``
        self._wanted = threading.Event()
        self._closed = threading.Event()
        self._heart = threading.Thread(target=self._keep_beating, daemon=True, name="heartbeat")

    def subscribe(self, topics: Iterable[str]) -> None:
        """Add *topics* until the end; the first call starts the heartbeats."""
        with self._lock:
            self._topics = tuple(sorted({*self._topics, *topics}))
            self._quick_beats = _QUICK_BEATS
        self.beat()
        if not self._heart.is_alive():
            self._heart.start()

    def has_changed(self) -> bool:
        """Return whether the grants differ from the adopted queues, or the lease has expired."""
        with self._lock:
            return self._has_lapsed or self._granted.keys() != self._held.keys()

    def may_hand_out(self) -> bool:
        """Return whether no other member can own the held queues; once False, until ``adopt``."""
        with self._lock:
            self._has_lapsed |= not self._lease.may_hand_out()
            return not self._has_lapsed

    def adopt(self) -> dict[Queue, int]:
        """Release queues that are not granted, take the granted ones; return next offsets.

        To be called when no message of a held queue is being processed.
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
                queue: max(self._held[queue], offset)  # another member may have had it meanwhile
                if queue in self._held
                else self._first_offset(queue, offset)
                for queue, offset in self._granted.items()
            }
            return dict(self._held)

    def holds_any(self) -> bool:
        """Return whether any queue was adopted."""
        with self._lock:
            return bool(self._held)

    def committed(self, queue: Queue) -> int:
        """Return the next queue offset of a held queue."""
        with self._lock:
            return self._held[queue]

    def commit(self, offsets: Mapping[Queue, int]) -> None:
        """Mark queues as finished below the offsets; queues that are not held are ignored."""
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
        """Report for all topics once, and take the granted queues.

        Raises:
            ShardUnavailableError: the coordinator is unavailable; nothing is lost.
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
                    reply = self._sessions.heartbeat(beat)
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
                self._sessions.leave(report)
        except (StreamError, OSError) as error:
            _LOG.warning(
                "the last commits were not reported, so their messages are redelivered: %s", error
            )

    def _tell_again(self, queues: Iterable[Queue]) -> None:
        """Repeat the commits of held queues, which a restarted coordinator may not know."""
        if not self._has_lapsed:
            self._commits = {queue: self._held[queue] for queue in queues} | self._commits

    def _is_outdated(self, queue: Queue, offset: int) -> bool:
        """Return whether another member may have owned the queue unnoticed, and read further."""
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
        """Return where to begin: at the group's offset, as far as it still exists."""
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
            except Exception as error:  # noqa: BLE001  # else the heartbeat stops without a trace
                self._on_failure(StreamError(f"the coordinator failed at a heartbeat: {error!r}"))
                return
            if self.has_changed():
                self._on_change()
