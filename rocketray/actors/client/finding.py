"""Finding a node: by DATA/node.json, which it keeps, or by the name of its cluster on a Ray.

On the node's own machine its directory is enough. From every machine of its Ray, the coordinator is
found by the name of the cluster, without a path or a process id.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rocketray.base.cluster import CLUSTER_VARIABLE, Cluster
from rocketray.base.environment import process_environ
from rocketray.base.file_form import UnknownVersionError
from rocketray.errors import (
    ConfigError,
    NodeElsewhereError,
    NodeNotRunningError,
    ShardUnavailableError,
    StoreError,
)
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.node_description import read_description
from rocketray.runtime.files.node_lock import node_holder
from rocketray.runtime.files.paths import node_file
from rocketray.runtime.machine import whereabouts
from rocketray.runtime.ray_process.ray_runtime import (
    RayError,
    cluster_of,
    join_ray,
    ray,
)

from .actor_names import find_actor
from .client_ray import CLIENT_RAY

_LOOK_S = 5.0  # for the coordinator's answer; one whose machine is down may never give any
_AUTO = "auto"  # Ray looks for the one that was started on this machine


def find_node(directory: Path) -> dict[str, Any]:
    """Return the description of the node that runs on *directory*, on this machine.

    Raises:
        NodeNotRunningError: no node runs there. NodeElsewhereError: it runs on another machine.
        ConfigError: *directory* is a file.
    """
    if directory.is_file():
        raise ConfigError(f"the data directory {directory} is a file; name a node's directory")
    node = _read_description(directory)
    where = "gone" if node is None else whereabouts(node)
    if node is not None and where == "here":
        return node
    machine = _machine_elsewhere(directory, node if where == "elsewhere" else None)
    start = f"rocketray start --data {directory}"
    if machine is not None:
        raise NodeElsewhereError(
            f"the node runs on {machine}, and this is {socket.gethostname()}: use it by the name of "
            f"its cluster ({CLUSTER_VARIABLE}, or --cluster), or if no node runs there any more, "
            f"start one here with: {start}"
        )
    said = f"no node runs on {directory}; start one with: {start}"
    address = process_environ().get("RAY_ADDRESS")
    if node is None and address:
        said = (
            f"{said}; if it runs on another machine of the Ray at {address}, use it by the name of "
            f"its cluster ({CLUSTER_VARIABLE}, or --cluster)"
        )
    raise NodeNotRunningError(said)


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


def _machine_elsewhere(directory: Path, node: Mapping[str, Any] | None) -> str | None:
    """Return the node's other machine: by its description, or by the Ray of this process."""
    if node is not None:
        return str(node["machine"])
    for name in _clusters() if ray.is_initialized() else ():
        try:
            home: Home = ray.get(find_actor(name, COORDINATOR_NAME).home.remote(), timeout=_LOOK_S)
        except (ShardUnavailableError, RayError):
            continue
        if home.machine != socket.gethostname() and home.data == str(directory):
            return home.machine
    return None


def _clusters() -> list[str]:
    """Return the names of the clusters on the Ray of this process."""
    found = ray.util.list_named_actors(all_namespaces=True)
    names = {cluster_of(each["namespace"]) for each in found if each["name"] == COORDINATOR_NAME}
    return sorted(filter(None, names))


def _read_description(directory: Path) -> dict[str, Any] | None:
    """Return the content of node.json; None if there is no such file."""
    try:
        return read_description(directory)
    except StoreError as error:
        runs = node_holder(directory)
        if runs is None:
            raise NodeNotRunningError(
                f"no node runs on {directory}, and the description that the last node left is "
                f"damaged, or of another release ({error}); start one with: rocketray start --data "
                f"{directory}"
            ) from None
        if isinstance(error, UnknownVersionError):
            raise
        raise NodeNotRunningError(
            f"the node on {directory} ({runs}) runs, but cannot be found because "
            f"{node_file(directory)} is damaged; end it with: kill {runs.removeprefix('pid ')}, "
            f"and start it again with: rocketray start --data {directory}"
        ) from None
