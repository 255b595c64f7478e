"""The rule that each disk of a cluster has one node on a Ray: its actors are found by their names.

Detached actors outlive the process that started them. The actors of a node that was killed, or
whose start failed, are ended by the next node of the same directory. That node holds the
directory's lock, so the process that they belonged to is gone. The actors of another directory's
node are left alone, and so are the hosts of apps, wherever they run: they wait for the next node
(endpoint.is_of_node). All actors of a node are started here.

The names of the actors of a joined disk end with ``@`` and its UUID.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rocketray.actors.client.actor_names import actor_or_none, find_actor
from rocketray.base.quantity import agreed, counted
from rocketray.errors import ActorError, ShardUnavailableError
from rocketray.runtime.calls.endpoint import (
    COORDINATOR_NAME,
    FILTER_NAME,
    GATEWAY_NAME,
    disk_in,
    is_of_node,
    process_actor,
)
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import (
    RayError,
    actor_id_of,
    cluster_of,
    namespace_of,
    pinned,
    ray,
)

_LOG = logging.getLogger(__name__)
_ANSWER_S = 10.0  # an actor that takes longer counts as silent
# Ray frees the name of an actor that is killed sooner, unless its machine is gone.
_END_S = 20.0
_STOP_S = 60.0  # a stop stores what is in the rings, and syncs all queues of a process
_LOOK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class _Owner:
    """What is known of who has a cluster; None for each actor that is not there or is silent.

    A standby may have the coordinator, while the filter actor is the first disk's. So the filter's
    home tells who has the names of a first disk, and not who has the coordinator.
    """

    coordinator: Home | None = None
    filter_actor: Home | None = None

    @property
    def home(self) -> Home | None:
        """The home of the coordinator, else that of the filter actor."""
        return self.coordinator or self.filter_actor


def make_room(home: Home, *, takes_over: bool = False) -> None:
    """End the actors that an earlier node of this directory left; for the holder of its lock.

    Actors that do not answer may be those of a raylet that was lost: Ray is about to end them. A
    node that *takes_over*, with the register of the cluster, ends them itself: they wait for a
    machine that may never come back. A coordinator that runs on a joined disk is left alone.

    Raises:
        ActorError: another directory's node has that name on this Ray, or the owner of the actors
            is unknown.
    """
    if home.is_joined:
        if names_of(home.cluster, home.disk):
            _end_left(home.cluster, home)
        return
    for cluster in _other_clusters(home.cluster):
        owner = _owner(cluster).home
        if owner is not None and owner.uuid == home.uuid:  # it was started by another name
            _end_left(cluster, home)
    end = time.monotonic() + _END_S
    while names_of(home.cluster):
        owner = _owner(home.cluster).home
        if owner is not None and owner.uuid == home.uuid:
            _end_left(home.cluster, home)
        elif owner is not None and owner.is_joined and takes_over:
            _LOG.warning(
                "ending what an earlier node on %s left; the coordinator of cluster %s runs on %s "
                "of %s until this node takes it back",
                *(home.data, home.cluster, owner.data, owner.machine),
            )
            end_actors(home.cluster, but=COORDINATOR_NAME)
            return  # it continues until the node can start its own
        elif owner is None and takes_over and time.monotonic() > end:
            _LOG.warning("ending actors of cluster %s that do not answer", home.cluster)
            end_actors(home.cluster)
        elif owner is not None or time.monotonic() > end:
            raise _name_is_taken(home.cluster, owner)
        time.sleep(_LOOK_AGAIN_S)


def coordinator_id(cluster: str) -> str:
    """Return the id of the actor that is the cluster's coordinator, "" without one."""
    actor = actor_or_none(cluster, COORDINATOR_NAME)
    return "" if actor is None else actor_id_of(actor)


def coordinator_elsewhere(home: Home, wait_s: float) -> Home | None:
    """Return the home of the cluster's coordinator, unless that is of a node of this first disk.

    Without one, or if it does not answer, ask again for *wait_s*.
    """
    end = time.monotonic() + wait_s
    while True:
        is_there = actor_or_none(home.cluster, COORDINATOR_NAME) is not None
        owner = _owner(home.cluster).home if is_there else None
        if owner is not None:
            is_own = owner.uuid == home.uuid and not owner.is_joined
            return None if is_own else owner
        if time.monotonic() > end:
            return None
        time.sleep(_LOOK_AGAIN_S)


def stop_coordinator(cluster: str) -> None:
    """Stop and end the coordinator, all saved if it answers; return when its name is free.

    Raises:
        ActorError: it does not end.
    """
    while (actor := actor_or_none(cluster, COORDINATOR_NAME)) is not None:
        try:
            ray.get(actor.stop.remote(), timeout=_ANSWER_S)
        except RayError as error:
            _LOG.warning("the coordinator does not stop, so it is killed: %r", error)
        end_coordinator(cluster, actor)


def end_coordinator(cluster: str, coordinator: Any) -> None:
    """End that *coordinator*; return when its name is free, or another one has it.

    So a standby never ends one that another node has started meanwhile.

    Raises:
        ActorError: it does not end.
    """
    end = time.monotonic() + _END_S
    while (present := actor_or_none(cluster, COORDINATOR_NAME)) is not None:
        if actor_id_of(present) != actor_id_of(coordinator):
            return
        ray.kill(coordinator)
        if time.monotonic() > end:
            raise ActorError(f"the coordinator of cluster {cluster} does not end; stop its Ray")
        time.sleep(_LOOK_AGAIN_S)


def _end_left(cluster: str, home: Home) -> None:
    """End the actors that an earlier node of this directory left in *cluster*."""
    names = ", ".join(names_of(cluster, home.disk))
    _LOG.warning("ending actors that an earlier node on %s left on this Ray: %s", home.data, names)
    end_actors(cluster, home.disk)


def start_actor(
    actor: type,
    name: str,
    threads: int,
    home: Home,
    *arguments: Any,
    is_alone: bool = False,
    groups: dict[str, int] | None = None,
) -> Any:
    """Return the actor of that name at *home*, started unless it runs; Ray restarts it.

    *groups* are Ray's concurrency groups, with their threads.

    Raises:
        ActorError: it runs already, and *is_alone*: another node started it a moment ago.
    """
    options = {
        **pinned(home),
        "name": name,
        "namespace": namespace_of(home.cluster),
        "get_if_exists": not is_alone,
        "lifetime": "detached",
        "num_cpus": 0,  # with 1, Ray would start no more actors than there are cores
        "max_restarts": -1,
        # Ray repeats a call whose actor ended. What must not be repeated goes by ``call_once``.
        "max_task_retries": -1,
        "max_concurrency": threads,
    }
    start = ray.remote(concurrency_groups=groups)(actor).options(**options)
    try:
        return start.remote(home, *arguments)
    except ValueError as error:
        if not is_alone:
            raise
        raise _name_is_taken(home.cluster) from error


def _name_is_taken(cluster: str, owner: Home | None = None) -> ActorError:
    whose = "a node" if owner is None else f"the node on {owner.data} of {owner.machine}"
    return ActorError(
        f"cluster {cluster!r} on this Ray is {whose} already ({', '.join(names_of(cluster))}); to "
        f"join it with this directory as a further disk, give its name with --cluster {cluster}; "
        "else stop that one, give this one another name with --cluster, or leave --ray-address "
        "out: the node then starts a Ray of its own"
    )


def stop_actors(home: Home) -> None:
    """Stop the actors of a joined disk: all their data is on disk on return.

    Raises:
        ActorError: some do not stop in time.
    """
    names = names_of(home.cluster, home.disk)
    for kind in (GATEWAY_NAME, process_actor(""), FILTER_NAME):  # the filter's process is the agent
        actors = [find_actor(home.cluster, name) for name in names if name.startswith(kind)]
        stopping = [actor.stop.remote() for actor in actors]
        if stopping:
            stopped, late = ray.wait(stopping, num_returns=len(stopping), timeout=_STOP_S)
            ray.get(stopped)
            if late:
                raise ActorError(
                    f"{counted(len(late), 'actor')} of {home.data} {agreed(len(late), 'have')} not "
                    f"stopped in {_STOP_S} s"
                )


def end_actors(cluster: str, disk: str = "", *, but: str = "") -> None:
    """End every actor of a disk of the cluster on this Ray; return when their names are free.

    The one with the name *but* stays.

    Raises:
        ActorError: some do not end.
    """
    _end(cluster, lambda: [name for name in names_of(cluster, disk) if name != but])


def _end(cluster: str, left: Callable[[], list[str]]) -> None:
    end = time.monotonic() + _END_S
    while names := left():
        for name in names:
            try:
                ray.kill(ray.get_actor(name, namespace=namespace_of(cluster)))
            except ValueError:
                continue  # it has ended in the meantime
        if time.monotonic() > end:
            raise ActorError(f"actors {', '.join(names)} of the node do not end; stop their Ray")
        time.sleep(_LOOK_AGAIN_S)


def names_of(cluster: str, disk: str = "") -> list[str]:
    """Return the names of the actors of a disk's node on this Ray; those of apps are not."""
    found = ray.util.list_named_actors(all_namespaces=True)
    namespace = namespace_of(cluster)
    names = sorted(each["name"] for each in found if each["namespace"] == namespace)
    return [name for name in names if is_of_node(name) and disk_in(name) == disk]


def _other_clusters(cluster: str) -> set[str]:
    """Return the names of the other clusters on this Ray."""
    found = ray.util.list_named_actors(all_namespaces=True)
    return {name for each in found if (name := cluster_of(each["namespace"]))} - {cluster}


def _owner(cluster: str) -> _Owner:
    """Ask the coordinator for its place, and if that does not answer, the filter for its home."""
    place = _answer(cluster, COORDINATOR_NAME, "place")
    return _Owner(place, None if place is not None else _answer(cluster, FILTER_NAME, "home"))


def _answer(cluster: str, name: str, method: str) -> Home | None:
    try:
        asked = getattr(find_actor(cluster, name), method).remote()
        found: Home = ray.get(asked, timeout=_ANSWER_S)
    except (RayError, ShardUnavailableError, AttributeError):  # the last: of an older version
        return None
    return found
