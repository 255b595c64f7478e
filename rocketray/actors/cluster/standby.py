"""A standby: the node of a joined disk that starts the coordinator when that is lost.

It needs the register of the cluster. Ray restarts a coordinator whose machine runs, and a standby
waits for that. When the coordinator is lost (coordinator_silence.py), the standby ends it, and
starts one on its own machine, from the register.

The queues of the first disk are unavailable until its machine returns. Then the node of the first
disk ends that coordinator, and starts its own (node.py).

Invariants
  1. That the coordinator is lost is a guess, and may be wrong: the new one seals the register
     first, and the old one, if it lives, saves nothing any more (register/documents.py).
  2. Of several standbys one starts the coordinator: Ray has one actor of that name, and a standby
     ends none but that which did not answer.
  3. The last call before a take-over is ``_ANSWER_S`` old, and one turn, at most: one that was made
     before a cut of the network may never be answered.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

from rocketray.actors.client.actor_names import actor_or_none
from rocketray.actors.client.ray_transport import WAITING_GROUP
from rocketray.errors import ActorError, StreamError
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import RayError, actor_id_of, hears_gcs, ray
from rocketray.runtime.register.register import open_register
from rocketray.runtime.register.roll_call import RollCall

from .coordinator_actor import COORDINATOR_THREADS, CoordinatorActor
from .coordinator_silence import START_S, CoordinatorSilence
from .one_node import end_coordinator, start_actor, stop_coordinator
from .registered_documents import RegisterOfStart, check_standby

_LOG = logging.getLogger(__name__)
_SPREAD_S = 2.0
"""By so much the waits of several standbys differ, so that one of them is first."""
_LOOK_INTERVAL_S = 1.0
_ANSWER_S = 5.0
"""After that a call counts as unanswered, and a new one is made (invariant 3)."""


class Standby:
    """The watch of a joined disk's node over the coordinator, in a thread of its own."""

    def __init__(self, home: Home, url: str) -> None:
        """Watch the coordinator of the cluster of *home*, whose register is at *url*.

        Raises as :func:`check_standby`.
        """
        self._home = home
        self._url = url
        self._asked: Any = None
        self._asked_s = 0.0
        self._looked_s = time.monotonic()
        self._place: Home | None = None  # of the coordinator that answered last
        self._silence = CoordinatorSilence(_spread_s())
        check_standby(url, home.cluster, home.cluster_id)
        self._roll = RollCall(open_register(url), home)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="standby", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def start_coordinator(self, waited_for: str) -> None:
        """Start the coordinator here, unless it answers: none has while this node waited for it.

        *waited_for* is the id of the one that Ray had when the wait began, or "". Return when one
        runs, or when it is not known within ``START_S``. Raises as ``look`` logs.
        """
        self._silence = CoordinatorSilence(_spread_s(), waited_for=waited_for)
        end_s = time.monotonic() + START_S
        while self._silence.has_waited and time.monotonic() < end_s:
            self._turn()
            time.sleep(_LOOK_INTERVAL_S)

    def look(self) -> None:
        """Start the coordinator here if it is lost; one turn of the thread."""
        try:
            self._turn()
        except (RayError, StreamError, OSError) as error:
            cluster, silent_s = self._home.cluster, self._silence.silent_s
            _LOG.warning(
                "cluster %s has had no answer from its coordinator for %.0f s, and no other one is "
                "started: %s",
                *(cluster, silent_s, error),
            )
            self._silence.restart()

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

    def _turn(self) -> None:
        """Ask the coordinator, in the register, too, if it is silent; replace one that is lost."""
        hears_ray = not self._silence.is_deaf or hears_gcs()  # else a look at its names would block
        place = self._answer() if hears_ray else None
        now_s = time.monotonic()
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        if place is not None:
            if self._place is not None and place != self._place:
                _LOG.info("the coordinator runs on %s of %s now", place.data, place.machine)
            self._place = place
            self._silence.hears(place, passed_s)
            return
        self._silence.misses(passed_s, hears_ray=hears_ray and hears_gcs())
        if self._silence.is_called and self._roll.is_answered():
            self._hear_in_register()
        elif self._silence.is_to_be_called:
            self._roll.call()
            self._silence.calls()
        if self._silence.is_lost:
            self._take_over()

    def _answer(self) -> Home | None:
        """Return the answer of the coordinator to the last call, or to a new one."""
        now_s = time.monotonic()
        if self._asked is None or now_s - self._asked_s > _ANSWER_S:
            actor = actor_or_none(self._home.cluster, COORDINATOR_NAME)
            self._silence.sees("" if actor is None else actor_id_of(actor))
            if actor is None:
                return None
            self._asked, self._asked_s = actor.place.remote(), now_s
        if not ray.wait([self._asked], timeout=_LOOK_INTERVAL_S)[0]:
            return None
        asked, self._asked = self._asked, None
        with suppress(RayError):
            place: Home = ray.get(asked)
            return place
        return None

    def _hear_in_register(self) -> None:
        _LOG.warning(
            "the coordinator of cluster %s%s answers in the register, and not here: check the "
            "network between these machines, in both directions, and whether one is too busy",
            *(self._home.cluster, self._there()),
        )
        self._silence.hears_in_register()

    def _there(self) -> str:
        """Return where the coordinator is, for a message."""
        return "" if self._place is None else f" on {self._place.data} of {self._place.machine}"

    def _take_over(self) -> None:
        """Start the coordinator here, unless another one runs by now."""
        cluster = self._home.cluster
        check_standby(self._url, cluster, self._home.cluster_id)
        present = actor_or_none(cluster, COORDINATOR_NAME)
        self._asked = None
        if present is not None:
            if actor_id_of(present) != self._silence.actor:  # another node was faster
                return
            _LOG.warning(
                "the coordinator of cluster %s%s has not answered for %.0f s, nor in the register: "
                "it is ended, and another one starts here",
                *(cluster, self._there(), self._silence.silent_s),
            )
            end_coordinator(cluster, present)
        else:
            _LOG.warning("cluster %s has no coordinator: one starts here", cluster)
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
            self._silence.restart()
            return
        self._silence.sees(actor_id_of(coordinator))
        self._place = ray.get(coordinator.place.remote(), timeout=START_S)
        self._silence.hears(self._home, 0.0)
        _LOG.warning("the coordinator of cluster %s runs here now", cluster)


def _spread_s() -> float:
    return random.uniform(0, _SPREAD_S)  # noqa: S311 - no secret
