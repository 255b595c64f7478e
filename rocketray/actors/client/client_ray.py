"""The Ray of this process's clients: watched, left when it is lost, and joined again.

A process has one Ray at a time, for all its connections. Ray itself notices the loss of its GCS
after a minute, and aborts the process; a call meanwhile blocks. So a thread watches the two servers
that the process cannot do without (ray_watch.py). When one of them is gone, each call raises
:class:`ShardUnavailableError` at once, and

- a Ray that a client joined is left, and joined again when it answers;
- a Ray that the program initialized is the program's to leave: clients continue with the next one
  that it initializes.

Then calls find the actors by their names again.

A GCS that is unavailable may be started again. Meanwhile calls to actors that this process knows,
and that live, are answered; all others would wait for it, and raise :class:`ShardUnavailableError`.

Two kinds of processes are not watched here: an
actor ends with its raylet, and a process that runs a node has a watch of its own (cluster/node.py).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from weakref import WeakSet

from rocketray.errors import NodeNotRunningError, ShardUnavailableError, StreamError
from rocketray.runtime.ray_process.ray_runtime import (
    RayError,
    has_ray,
    is_driver,
    leave_ray,
    ray_session,
    watch_ray,
)
from rocketray.runtime.ray_process.ray_watch import AwayNote, RayWatch
from rocketray.runtime.signal_handlers import same_handler_behind

_LOG = logging.getLogger(__name__)
_WATCH_INTERVAL_S = 1.0  # then a server that has ended is noticed, and calls under way raise
JoinRay = Callable[[str], None]
"""Joins a Ray; it gets the address of the one that was lost, or "" at first."""


class ClientRay:
    """The Ray of this process's clients; safe to use from several threads."""

    def __init__(self, interval_s: float = _WATCH_INTERVAL_S) -> None:
        """Begin without a Ray; *interval_s* is the time between two looks at its servers."""
        self._interval_s = interval_s
        self._users: WeakSet[object] = WeakSet()
        self._entering = threading.Lock()
        self._is_watched = False
        self._join: JoinRay | None = None
        self._joined = ""  # the session that a client joined
        self._lost: str | None = None
        self._away = AwayNote()

    def enter(self, join: JoinRay) -> bool:
        """Call *join* and return True; return False if this process has a Ray already.

        Raises:
            NodeNotRunningError: the Ray of this process is lost.
        """
        with self._entering:
            if self._lost is not None:
                raise NodeNotRunningError(self._lost)
            if has_ray():
                return False
            join("")
            self._join, self._joined = join, ray_session()
            return True

    def keep(self, user: object) -> None:
        """Watch the Ray, and join it again if it is lost, while *user* exists."""
        self._users.add(user)
        with self._entering:
            if not self._is_watched and is_driver():
                threading.Thread(target=self._watch, daemon=True, name="ray").start()
                self._is_watched = True

    def check(self) -> None:
        """Raise :class:`ShardUnavailableError` while Ray is lost: a call would block."""
        if self._lost is not None:
            raise ShardUnavailableError("the node", self._lost)

    def gcs_away(self) -> str | None:
        """Return what to say of the GCS while it is unavailable, else None."""
        return self._away.said

    def _watch(self) -> None:
        session, watch = "", None
        while self._has_users():
            now = ray_session()
            if now != session or watch is None:
                session, watch = now, _new_watch() if now else None
            elif (what := watch.lost()) is not None:
                self._give_up(session, watch.gcs, what)
                watch = None
            self._away.look(watch)
            time.sleep(self._interval_s)

    def _has_users(self) -> bool:
        """Return whether to watch on; if not, the next :meth:`keep` starts a thread."""
        with self._entering:
            self._is_watched = len(self._users) > 0
            return self._is_watched

    def _give_up(self, session: str, address: str, what: str) -> None:
        """Leave a Ray that is lost, and return when this process has one again."""
        is_joined = session == self._joined
        end = (
            "this process joins it again when it answers"
            if is_joined
            else "this program initialized Ray: let it call ray.shutdown(), and ray.init() again"
        )
        self._lost = f"Ray is lost, {what}; {end}"
        _LOG.warning("%s", self._lost)
        if is_joined:
            with same_handler_behind():  # of SIGTERM, which Ray takes along when it is left
                leave_ray(is_lost=True)
        while len(self._users) and ray_session() in ("", session):
            time.sleep(self._interval_s)
            if is_joined:
                self._join_again(address)
        self._lost = None
        _LOG.info("the Ray at %s is joined again", address)

    def _join_again(self, address: str) -> None:
        """Join the Ray again if it answers, unless the program initialized one meanwhile."""
        with self._entering:
            if self._join is None or has_ray():
                return
            try:
                with same_handler_behind():
                    self._join(address)
            except StreamError as error:
                _LOG.debug("Ray is not joined again yet: %s", error)
            else:
                self._joined = ray_session()


def _new_watch() -> RayWatch | None:
    """Return a watch of the Ray of this process; None while Ray does not say where it is."""
    try:
        return watch_ray(is_own=False)
    except (RayError, ValueError, OSError) as error:
        _LOG.debug("Ray is not watched yet: %r", error)
        return None


CLIENT_RAY = ClientRay()


def _begin_anew() -> None:
    """Forget the clients and the Ray of the process of which this one is a fork."""
    vars(CLIENT_RAY).update(vars(ClientRay()))


os.register_at_fork(after_in_child=_begin_anew)
