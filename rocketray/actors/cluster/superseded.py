"""The end of a first disk's node that has lost its coordinator: its actors, and why, for a person.

A standby ends a silent coordinator before it starts its own, so for some seconds the cluster has no
coordinator. Then the new one seals the register, with its home. So the register alone is asked who
has the cluster: no actor has to answer, and a late answer is not taken for another one.

Invariants
  1. The actors of another first disk's node are left alone, though they have the same names. Such a
     node starts its filter actor before all others, and only when all of the names were free.
     So if the name of the filter actor is still that of this node's, or of none, then whatever had
     one of the names before is not of another node that runs.
  2. A coordinator that is not the node's own is left alone: a standby has the cluster with it.
  3. All other actors of the node are ended, whether they answer or not.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from rocketray.actors.client.actor_names import actor_or_none
from rocketray.errors import ActorError, StreamError
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME, FILTER_NAME
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import RayError, actor_id_of, ray

from .coordinator_silence import START_S
from .one_node import names_of
from .registered_documents import RegisterOfStart, taker_of

_LOG = logging.getLogger(__name__)
_END_S = 20.0  # as in one_node.py
_LOOK_AGAIN_S = 0.1
_ASK_AGAIN_S = 0.5  # of the register, which may be an object store: two requests a second


def has_ended(superseded: Any) -> bool:
    """Return whether the coordinator of that call is superseded, or has ended for good."""
    if not ray.wait([superseded], timeout=0)[0]:
        return False
    try:
        ray.get(superseded)
    except RayError as error:  # it tells how a process ended, and not why
        _LOG.debug("the coordinator has ended: %s", error)
    return True


def end_own_actors(cluster: str, coordinator: Any, filter_actor: Any) -> None:
    """End the actors of a first disk's node, and those of no other one; return when they are gone.

    *coordinator* and *filter_actor* are its own.

    Raises:
        ActorError: some do not end.
    """
    ray.kill(coordinator)
    end_s = time.monotonic() + _END_S
    while left := _left(cluster, actor_id_of(filter_actor)):
        for actor in left.values():
            ray.kill(actor)
        if time.monotonic() > end_s:
            raise ActorError(f"actors {', '.join(left)} of the node do not end; stop their Ray")
        time.sleep(_LOOK_AGAIN_S)


def _left(cluster: str, filter_id: str) -> dict[str, Any]:
    """Return the actors of the node by name, none if another node has the names; but coordinators.

    The name of the filter actor is looked up last, see invariant 1.
    """
    found = {name: actor_or_none(cluster, name) for name in names_of(cluster)}
    present = actor_or_none(cluster, FILTER_NAME)
    if present is not None and actor_id_of(present) != filter_id:
        return {}
    return {
        name: actor
        for name, actor in found.items()
        if actor is not None and name != COORDINATOR_NAME
    }


def why_superseded(home: Home, register: RegisterOfStart, stopping: threading.Event) -> str:
    """Return who has the cluster of the first disk at *home* now, and what its operator can do.

    The register is asked until it names another coordinator, for as long as one may need to start,
    or until the node is *stopping*.
    """
    ends = f"the node on {home.data} ends: its coordinator"
    end_s = time.monotonic() + START_S
    while True:
        try:
            taker = taker_of(register)
        except StreamError as error:
            known = f"has ended, and who has the cluster now is not known: {error}"
        else:
            if taker is not None:
                return f"the node on {home.data} ends: {_told_of(taker.home, home, register.url)}"
            known = f"has ended, and no other one has taken over in {START_S:.0f} s"
        if time.monotonic() > end_s or stopping.wait(_ASK_AGAIN_S):
            return (
                f"{ends} {known}; start it again, with the options that it had: rocketray start "
                f"--data {home.data}"
            )


def _told_of(taker: Home | None, home: Home, url: str) -> str:
    """Return what a person should know of the home of the coordinator that has taken over."""
    over = "another coordinator has taken over"
    if taker is None:  # of an earlier release
        return f"{over} in the register {url}; use the node that was started last"
    if taker.uuid == home.uuid:
        return f"{over}, of a later start on this directory, on {taker.machine}; use that node"
    there = f"{taker.data} of {taker.machine}"
    if taker.is_joined:
        return (
            f"its coordinator did not answer for some time, and runs on {there} now; start this "
            "node again, and it takes the coordinator back"
        )
    return (
        f"{over}, and the cluster continues with {there} as its first disk, without the messages "
        "of this directory; to continue with this directory instead, stop the node there, then "
        "start this one again"
    )
