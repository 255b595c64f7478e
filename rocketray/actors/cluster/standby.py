"""A standby: the node of a joined disk that starts the coordinator when that is lost.

It needs the register of the cluster. Ray restarts a coordinator whose machine runs, and a standby
waits for that. After ``TAKE_OVER_S`` without an answer it ends the coordinator, and starts one on
its own machine, from the register. One that was started elsewhere has ``START_S`` to answer.

The queues of the first disk are unavailable until its machine returns. Then the node of the first
disk ends that coordinator, and starts its own (node.py).

Invariants
  1. That the coordinator is lost is a guess, and may be wrong: the new one seals the register
     first, and the old one, if it lives, saves nothing any more (register/documents.py).
  2. Of several standbys one starts the coordinator: Ray has one actor of that name, and a standby
     ends none but that which did not answer.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

from rocketray.actors.calls.endpoint import COORDINATOR_NAME
from rocketray.actors.client.actor_names import actor_or_none
from rocketray.actors.client.ray_transport import WAITING_GROUP
from rocketray.actors.files.home import Home
from rocketray.actors.ray_process.ray_runtime import RayError, actor_id_of, ray
from rocketray.errors import ActorError, StreamError

from .coordinator_actor import COORDINATOR_THREADS, CoordinatorActor
from .one_node import end_coordinator, start_actor, stop_coordinator
from .registered_documents import RegisterOfStart, check_standby

__all__ = ["START_S", "Standby"]

_LOG = logging.getLogger(__name__)
TAKE_OVER_S = 20.0
"""How long a coordinator may be silent: Ray restarts one whose process died within seconds."""
_SPREAD_S = 2.0
"""By so much the waits of several standbys differ, so that one of them is first."""
_LOOK_INTERVAL_S = 1.0
_ANSWER_S = 5.0
START_S = 60.0
"""How long the start of a coordinator may take, on a machine that starts a node."""


class Standby:
    """The watch of a joined disk's node over the coordinator, in a thread of its own."""

    def __init__(self, home: Home, url: str) -> None:
        """Watch the coordinator of the cluster of *home*, whose register is at *url*.

        Raises as :func:`check_standby`.
        """
        self._home = home
        self._url = url
        self._asked: Any = None
        self._of = ""  # the id of the actor that was asked
        self._due_s = time.monotonic() + TAKE_OVER_S  # when it is lost unless it answers
        self._over = threading.Event()
        check_standby(url, home.cluster, home.cluster_id)
        self._thread = threading.Thread(target=self._run, name="standby", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def start_coordinator(self) -> None:
        """Start the coordinator here at once: none has answered while this node waited for it."""
        self._ask()
        self._take_over()

    def look(self) -> None:
        """Start the coordinator here if it is lost; one turn of the thread."""
        try:
            self._ask()
            if time.monotonic() >= self._due_s:
                self._take_over()
                self._expect_within(TAKE_OVER_S)
        except (RayError, StreamError, OSError) as error:
            _LOG.warning("cluster %s has no coordinator yet: %s", self._home.cluster, error)
            self._expect_within(TAKE_OVER_S)

    def stop(self) -> None:
        """Watch no more; a coordinator that runs here is stopped, all saved.

        Raises:
            ActorError: it does not end.
        """
        self.close()
        self._thread.join()
        actor = actor_or_none(self._home.cluster, COORDINATOR_NAME)
        with suppress(RayError):
            if actor is not None:
                place: Home = ray.get(actor.place.remote(), timeout=_ANSWER_S)
                if place.uuid == self._home.uuid:
                    stop_coordinator(self._home.cluster)

    def close(self) -> None:
        """Watch no more; for a node whose Ray is lost."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(_LOOK_INTERVAL_S):
            self.look()

    def _expect_within(self, seconds: float) -> None:
        spread_s = random.uniform(0, _SPREAD_S)  # noqa: S311 - no secret
        self._due_s = time.monotonic() + seconds + spread_s

    def _ask(self) -> None:
        """Take the answer of the coordinator, or ask it again."""
        if self._asked is None:
            actor = actor_or_none(self._home.cluster, COORDINATOR_NAME)
            if actor is None:
                if self._of:  # it was ended, and another one starts, or none
                    self._of = ""
                    self._expect_within(TAKE_OVER_S)
                return
            if actor_id_of(actor) != self._of:
                self._of = actor_id_of(actor)
                self._expect_within(START_S)
            self._asked = actor.place.remote()
        if ray.wait([self._asked], timeout=_LOOK_INTERVAL_S)[0]:
            asked, self._asked = self._asked, None
            try:
                ray.get(asked)
            except RayError:
                return
            self._expect_within(TAKE_OVER_S)

    def _take_over(self) -> None:
        """Start the coordinator here, unless another one runs by now."""
        cluster = self._home.cluster
        check_standby(self._url, cluster, self._home.cluster_id)
        present = actor_or_none(cluster, COORDINATOR_NAME)
        self._asked = None
        if present is not None:
            if actor_id_of(present) != self._of:
                return
            end_coordinator(cluster)
        _LOG.warning("the coordinator of cluster %s is lost, and starts here", cluster)
        try:
            coordinator = start_actor(
                CoordinatorActor,
                COORDINATOR_NAME,
                COORDINATOR_THREADS,
                self._home,
                None,
                RegisterOfStart(self._url, uuid.uuid4().hex),
                is_alone=True,
                groups=WAITING_GROUP,
            )
        except ActorError as error:
            _LOG.info("another node was faster: %s", error)
            return
        ray.get(coordinator.place.remote(), timeout=START_S)
        _LOG.warning("the coordinator of cluster %s runs here now", cluster)
