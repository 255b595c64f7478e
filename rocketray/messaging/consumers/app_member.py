"""One instance of an app as a member of one group, on all its topics at once.

A :class:`~.member.GroupConsumer` also delivers messages. This class is membership alone: a session
on each topic (member_session.py). The app's reader is notified of a change, stops the affected
work, and calls ``adopt``.

Invariants
  1. An adopted queue is reported as held until the next ``adopt``, which the app calls when it has
     finished and committed the queue's messages.
  2. Heartbeats have a thread of their own: a busy app keeps its queues.
  3. Nothing may be delivered unless all sessions with adopted queues have a lease. Once the app was
     told so, nothing may be delivered before the next ``adopt``: the app drops events meanwhile,
     and reads again from where ``adopt`` says.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from rocketray.broker.topics.log_reader import Queue
from rocketray.errors import ShardUnavailableError, StreamError, TopicNotFoundError
from rocketray.filters.subscription import EVERYTHING
from rocketray.groups.groups_api import SessionsApi
from rocketray.groups.heartbeat import AppInstance, Heartbeat
from rocketray.groups.member_options import StartFrom
from rocketray.runtime.clock import steady_clock_ms
from rocketray.runtime.one_process import OfOneProcess
from rocketray.runtime.outage_log import OutageLog

from .member import HEARTBEAT_INTERVAL_S
from .member_session import MemberSession
from .start_offset import next_begin

_LOG = logging.getLogger(__name__)
# After a change the member reports ten times a second, for two seconds. A queue changes hands in
# two heartbeats, one that releases it and one that is granted it, and meanwhile no member reads it.
_QUICK_INTERVAL_S = 0.1
_QUICK_BEATS = 20


class AppMember(OfOneProcess, what="consumer"):
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
        self._coordinator = sessions
        self._group = group
        instance = uuid.uuid4().hex
        self._identity = Heartbeat(
            # Positions are dense, so their readers have no filter.
            *(group, "", EVERYTHING, client_id, instance, frozenset()),
            together=AppInstance(group, instance),
        )
        self._bounds = bounds
        self._start = start
        self._on_change = on_change
        self._on_failure = on_failure
        self._clock_ms = clock_ms
        self._outages = OutageLog(_LOG)
        self._sessions: dict[str, MemberSession] = {}
        self._moves: dict[str, int] = {}
        self._deleted: frozenset[str] = frozenset()
        self._ever_deleted: frozenset[str] = frozenset()  # a coordinator may forget it at a start
        self._has_lost_topic = False  # as the app was told since the last ``adopt``
        self._beating = threading.Lock()  # the subscribing thread and the heartbeat's take turns
        self._quick_beats = 0
        self._has_lapsed = False  # as the app was told since the last ``adopt``
        self._wanted = threading.Event()
        self._closed = threading.Event()
        self._heart = threading.Thread(target=self._keep_beating, daemon=True, name="heartbeat")

    def subscribe(self, topics: Iterable[str]) -> None:
        """Add *topics* until the end; the first call starts the heartbeats."""
        added = sorted({*topics} - self._sessions.keys() - self._deleted)
        sessions = {topic: self._new_session(topic) for topic in added}
        self._sessions = self._sessions | sessions  # another thread may look through the old ones
        self._quick_beats = _QUICK_BEATS
        self.beat()
        if not self._heart.is_alive():
            self._heart.start()

    def has_changed(self) -> bool:
        """Return whether an ``adopt`` is due: queues changed, or events were dropped."""
        sessions = self._sessions.values()
        is_told = self._has_lapsed or self._has_lost_topic
        return is_told or any(s.needs_rebalance or s.must_begin for s in sessions)

    @property
    def deleted(self) -> frozenset[str]:
        """The topics that were deleted; each is read again when it exists again."""
        return self._deleted

    def may_hand_out(self) -> bool:
        """Return whether no other member can own the held queues; once False, until ``adopt``."""
        sessions = self._sessions.values()
        are_leased = [each.lease.may_hand_out() for each in sessions if each.is_reading]
        self._has_lapsed |= not all(are_leased)
        return not self._has_lapsed

    def adopt(self) -> dict[Queue, int]:
        """Release queues that are not granted, take the granted ones; return next offsets.

        To be called when no message of a held queue is being processed.
        """
        self._has_lost_topic = False
        self._revoke_lost()  # so that the heartbeat leaves them out, and has their last commits
        self._quick_beats = _QUICK_BEATS
        self.beat()
        self._has_lapsed = False
        self._revoke_lost()  # what that reply took; nothing of it is in work, so it can go at once
        for topic, session in self._sessions.items():
            for queue_id, offset in session.assign().items():
                session.begin(queue_id, self._first_offset((topic, queue_id), offset))
        return self._adopted()

    def holds_any(self) -> bool:
        """Return whether any queue was adopted."""
        return any(each.is_reading for each in self._sessions.values())

    def committed(self, queue: Queue) -> int:
        """Return the next queue offset of a held queue."""
        return self._adopted()[queue]

    def commit(self, offsets: Mapping[Queue, int]) -> None:
        """Mark queues as finished below the offsets; queues that are not held are ignored."""
        for (topic, queue_id), offset in offsets.items():
            if topic in self._sessions:
                self._sessions[topic].commit(queue_id, offset)
        self._wanted.set()

    def beat(self) -> None:
        """Report for all topics once, and take the granted queues.

        A topic that was deleted is left, and looked for at each beat; the others continue.

        Raises:
            StreamError: the coordinator is unavailable, or refuses; or a queue was moved to another
                disk.
        """
        with self._beating:
            self._look_for_deleted()
            for topic, session in self._sessions.items():
                moves = self._moves.get(topic)
                try:
                    session.beat(self._coordinator.heartbeat)
                except TopicNotFoundError:
                    self._leave(topic)
                    continue
                if session.moves != self._moves.setdefault(topic, session.moves):
                    raise StreamError(
                        f"queues of topic {topic!r} were moved from disk to disk ({session.moves} "
                        f"moves, {moves} at the start of this app); a stock Faust app reads the "
                        "files of one disk: stop it, move them back, or run its agents with rr.App"
                    )

    def close(self) -> None:
        """Send the last commits and leave the group."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._wanted.set()
        if self._heart.is_alive():
            self._heart.join()
        try:
            for session in self._sessions.values():
                self._coordinator.leave(session.leave())
        except (StreamError, OSError) as error:
            _LOG.warning(
                "the last commits were not reported, so their messages are redelivered: %s", error
            )

    def _new_session(self, topic: str) -> MemberSession:
        return MemberSession(replace(self._identity, topic=topic), self._clock_ms)

    def _leave(self, topic: str) -> None:
        others = self._sessions.items()
        self._sessions = {name: session for name, session in others if name != topic}
        self._moves.pop(topic, None)
        self._deleted |= {topic}
        self._ever_deleted |= {topic}
        self._has_lost_topic = True
        _LOG.warning(
            "topic %s was deleted; group %s waits until it exists again, and reads it then from "
            "its beginning: rocketray topics create %s",
            topic, self._group, topic,
        )  # fmt: skip

    def _look_for_deleted(self) -> None:
        for topic in sorted(self._deleted):
            session = self._new_session(topic)
            with suppress(TopicNotFoundError):
                session.beat(self._coordinator.heartbeat)
                self._deleted -= {topic}
                self._sessions = self._sessions | {topic: session}
                _LOG.info("topic %s exists again, and is read from its beginning", topic)

    def _adopted(self) -> dict[Queue, int]:
        return {
            (topic, queue_id): offset
            for topic, session in self._sessions.items()
            for queue_id, offset in session.finished().items()
        }

    def _revoke_lost(self) -> None:
        for session in self._sessions.values():
            session.revoke(session.lost())

    def _first_offset(self, queue: Queue, offset: int) -> int:
        """Return where to begin: at the group's offset, as far as it still exists."""
        minimum, visible = self._bounds(queue)
        if offset < 0:
            # All messages of a topic that was created again came while the group waited for it.
            is_whole = self._start == "earliest" or queue[0] in self._ever_deleted
            return minimum if is_whole else visible
        begin = next_begin(offset, minimum, visible)
        begin.log(self._group, *queue, offset)
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
                self._outages.works("coordinator")
            except (ShardUnavailableError, OSError) as error:
                warning = "the coordinator does not answer, trying again: %s"
                self._outages.failed("coordinator", warning, error)
                # Commits and quick beats would end the wait above early, and ask without a pause.
                self._closed.wait(HEARTBEAT_INTERVAL_S)
            except StreamError as error:
                self._on_failure(error)
                return
            except Exception as error:  # noqa: BLE001  # else the heartbeat stops without a trace
                self._on_failure(StreamError(f"the coordinator failed at a heartbeat: {error!r}"))
                return
            if self.has_changed():
                self._on_change()
