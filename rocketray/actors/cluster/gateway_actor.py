"""The gateway actor, from which group members on other nodes than the shards fetch messages.

Each member may have one waiting fetch, which takes a thread. There are as many threads as sessions
may be, and ``_SPARE_THREADS`` for calls that return at once: those never wait behind fetches.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from rocketray.actors.calls.endpoint import ServedObjects
from rocketray.actors.client.connection import Connection
from rocketray.actors.files.home import Home
from rocketray.actors.remote.fetch_api import GATEWAY
from rocketray.actors.remote.fetch_sessions import SESSIONS_MAX, FetchSessions
from rocketray.actors.runtime.periodic import start_periodic_task

__all__ = ["GATEWAY_THREADS", "GatewayActor"]

_SPARE_THREADS = 56
GATEWAY_THREADS = SESSIONS_MAX + _SPARE_THREADS
_SWEEP_INTERVAL_S = 5.0


class GatewayActor:
    """The Ray shell of :class:`FetchSessions`; started with the first member on another node."""

    def __init__(self, home: Home) -> None:
        self._sessions = FetchSessions(Connection(home.directory()), time.monotonic)
        self._served = ServedObjects()
        self._served.serve(GATEWAY, lambda: self._sessions)
        self._stop = threading.Event()
        start_periodic_task("sweeping", _SWEEP_INTERVAL_S, self._stop, self._sessions.sweep)

    def call(self, interface: str, method: str, /, *arguments: Any, **options: Any) -> Any:
        """See :meth:`ServedObjects.call`."""
        return self._served.call(interface, method, *arguments, **options)

    def ready(self) -> None:
        """Return when the actor can serve calls."""

    def stop(self) -> None:
        """Drop all sessions."""
        self._stop.set()
        self._sessions.close()
