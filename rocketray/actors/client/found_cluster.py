"""Finding a node by the name of its cluster on a Ray, from every machine of that."""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path

from rocketray.base.cluster import Cluster
from rocketray.base.environment import process_environ
from rocketray.errors import ConfigError, NodeNotRunningError, ShardUnavailableError
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME
from rocketray.runtime.files.home import Home
from rocketray.runtime.ray_process.ray_runtime import RayError, cluster_of, join_ray, ray

from .actor_names import find_actor
from .client_ray import CLIENT_RAY

_LOOK_S = 5.0  # for the coordinator's answer; one whose machine is down may never give any
_AUTO = "auto"  # Ray looks for the one that was started on this machine


def find_cluster(cluster: Cluster) -> Home:
    """Join the cluster's Ray, unless this process has one, and return the home of its node.

    Raises:
        NodeNotRunningError: there is no such Ray, or no node of that name on it.
        ConfigError: this process has joined another Ray.
    """
    address = cluster.ray_address or process_environ().get("RAY_ADDRESS") or _AUTO
    has_joined = CLIENT_RAY.enter(partial(_join_ray_at, address))
    if not has_joined and cluster.ray_address is not None:
        joined = str(ray.get_runtime_context().gcs_address)
        if _has_port(address) and address != joined:
            raise ConfigError(
                f"this process has joined the Ray at {joined}, and cluster {cluster.name!r} is "
                f"wanted on the Ray at {address}: a process has one Ray at a time"
            )
        address = joined
    try:
        coordinator = find_actor(cluster.name, COORDINATOR_NAME)
        home: Home = ray.get(coordinator.home.remote(), timeout=_LOOK_S)
    except (ShardUnavailableError, RayError) as error:
        raise NodeNotRunningError(_not_found(cluster.name, address, error)) from error
    return home


def machine_of(directory: Path) -> str | None:
    """Return the other machine of the node on *directory*, if the Ray of this process has it."""
    for name in _clusters() if ray.is_initialized() else ():
        try:
            home: Home = ray.get(find_actor(name, COORDINATOR_NAME).home.remote(), timeout=_LOOK_S)
        except (ShardUnavailableError, RayError):
            continue
        if home.machine != socket.gethostname() and home.data == str(directory):
            return home.machine
    return None


def _join_ray_at(address: str, again: str) -> None:
    """Join the Ray at *address*, or the lost one at *again*: a name may lead to another one now."""
    join_ray(
        again or address,
        advice="; name the Ray of the cluster as HOST:PORT (RAY_ADDRESS, or --ray-address)",
    )


def _not_found(name: str, address: str, error: Exception) -> str:
    """Return why a cluster is not found, and what there is instead."""
    if not isinstance(error, ShardUnavailableError):
        return (
            f"cluster {name!r} on the Ray at {address} does not answer: its coordinator is "
            f"starting, or its machine does not answer ({type(error).__name__}); try again"
        )
    there = ", ".join(map(repr, _clusters()))
    return (
        f"no cluster {name!r} runs on the Ray at {address}: "
        + (f"there is {there}" if there else "there is none")
        + f"; start it on the machine of its data with: rocketray start --cluster {name} "
        f"--ray-address {'HOST:PORT' if address == _AUTO else address} --data DIR"
    )


def _has_port(address: str) -> bool:
    return address.rpartition(":")[2].isdecimal()


def _clusters() -> list[str]:
    """Return the names of the clusters on the Ray of this process."""
    found = ray.util.list_named_actors(all_namespaces=True)
    names = {cluster_of(each["namespace"]) for each in found if each["name"] == COORDINATOR_NAME}
    return sorted(filter(None, names))
