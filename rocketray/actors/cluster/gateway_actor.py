"""The gateway actor, which serves group members on other nodes than the shards.

Each member may have one waiting poll, which takes a thread. There are as many threads as members
may be, and ``_SPARE_THREADS`` for calls that return at once: those never wait behind polls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from rocketray.actors.client.connection import Connection
from rocketray.actors.consumers.member import GroupConsumer
from rocketray.actors.files.home import Home
from rocketray.actors.groups.failing import FailingMessage
from rocketray.actors.remote.remote_calls import CommitReply, JoinRequest, PollReply
from rocketray.actors.remote.remote_members import MEMBERS_MAX, RemoteMembers
from rocketray.actors.runtime.periodic import start_periodic_task

__all__ = ["GATEWAY_THREADS", "GatewayActor"]

_SPARE_THREADS = 56
GATEWAY_THREADS = MEMBERS_MAX + _SPARE_THREADS
_SWEEP_INTERVAL_S = 5.0


class GatewayActor:
    """The Ray shell of :class:`RemoteMembers`; started with the first remote member."""

    def __init__(self, home: Home) -> None:
        connection = Connection(home.directory())

        def join(request: JoinRequest) -> GroupConsumer:
            identity = request.group, request.topic, request.subscription
            return GroupConsumer(connection, *identity, **request.options)

        self._members = RemoteMembers(join, time.monotonic)
        self._stop = threading.Event()
        start_periodic_task("sweeping", _SWEEP_INTERVAL_S, self._stop, self._members.sweep)

    def join(self, name: str, request: JoinRequest) -> None:
        """See :meth:`RemoteMembers.join`; the same applies to the other calls."""
        self._members.join(name, request)

    def poll(self, name: str, timeout_s: float, received: int) -> PollReply:
        """Return batches for a member."""
        return self._members.poll(name, timeout_s, received)

    def commit(self, name: str, commits: Mapping[int, int], number: int = 0) -> CommitReply:
        """Take next queue offsets by queue."""
        return self._members.commit(name, commits, number)

    def count_returns(self, name: str, sent_back: int, dead_lettered: int) -> None:
        """Count messages that were sent back or dead-lettered."""
        self._members.count_returns(name, sent_back, dead_lettered)

    def report_failing(self, name: str, failing: Mapping[int, FailingMessage]) -> None:
        """Set the messages at which the member holds queues."""
        self._members.report_failing(name, failing)

    def leave_alone(self, name: str, queue_ids: frozenset[int]) -> None:
        """Pause just these queues of the member."""
        self._members.leave_alone(name, queue_ids)

    def give_up(
        self, name: str, revocation: int, commits: Mapping[int, int], number: int = 0
    ) -> None:
        """Note that the member released the revoked queues."""
        self._members.give_up(name, revocation, commits, number)

    def leave(self, name: str, commits: Mapping[int, int], number: int = 0) -> None:
        """Have the member leave its group."""
        self._members.leave(name, commits, number)

    def ready(self) -> None:
        """Return when the actor can serve calls."""

    def stop(self) -> None:
        """Leave all groups, in order."""
        self._stop.set()
        self._members.close()
