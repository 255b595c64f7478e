"""The gateway actor, which serves group members on other nodes than the shards.

Each member may have one waiting poll, which takes a thread. There are as many threads as members
may be, and ``_SPARE_THREADS`` for calls that return at once: those never wait behind polls.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from rocketray.actors.calls.endpoint import ServedObjects
from rocketray.actors.client.connection import Connection
from rocketray.actors.consumers.member import GroupConsumer
from rocketray.actors.files.home import Home
from rocketray.actors.remote.remote_calls import GATEWAY, JoinRequest
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
        self._served = ServedObjects()
        self._served.serve(GATEWAY, lambda: self._members)
        self._stop = threading.Event()
        start_periodic_task("sweeping", _SWEEP_INTERVAL_S, self._stop, self._members.sweep)

    def call(self, interface: str, method: str, /, *arguments: Any, **options: Any) -> Any:
        """See :meth:`ServedObjects.call`."""
        return self._served.call(interface, method, *arguments, **options)

    def ready(self) -> None:
        """Return when the actor can serve calls."""

    def stop(self) -> None:
        """Leave all groups, in order."""
        self._stop.set()
        self._members.close()
