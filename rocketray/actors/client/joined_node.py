"""Joining the Ray of a node: the node is found, and this process becomes one of its Ray's."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from rocketray.base.cluster import DEFAULT_CLUSTER, Cluster
from rocketray.runtime.ray_process.ray_runtime import join_ray

from .client_ray import CLIENT_RAY
from .finding import find_node
from .found_cluster import find_cluster
from .ray_transport import RayTransport


def join_node(place: Path | Cluster) -> RayTransport:
    """Join the Ray of a node, and return the transport to it; raises as :meth:`Connection.open`."""
    if isinstance(place, Cluster):
        transport = RayTransport(Path(find_cluster(place).data), place.name)
    else:
        directory = place.resolve()
        CLIENT_RAY.enter(partial(_join_ray_of, directory))
        node = find_node(directory)
        # The node of a joined disk leads to the first disk, whose directory names the cluster.
        data = Path(str(node.get("coordinatorData", directory)))
        transport = RayTransport(data, str(node.get("cluster", DEFAULT_CLUSTER)), node)
    # Ray is joined again when it was lost, as long as the transport exists. A node of this process
    # watches its Ray itself.
    if transport.node is None or transport.node.get("pid") != os.getpid():
        CLIENT_RAY.keep(transport)
    return transport


def _join_ray_of(directory: Path, _: str) -> None:
    """Join the Ray of the node that runs on *directory* now."""
    node = find_node(directory)
    token = node.get("tokenPath")
    join_ray(
        str(node["address"]),
        str(node.get("authMode", "")),
        token and Path(str(token)),
        node.get("raylet"),
    )
