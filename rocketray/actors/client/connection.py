"""A connection to a running node over Ray and shared memory, for what is part of a Ray.

A connection finds the node by its data directory (DATA/node.json) or by the name of its cluster,
and joins its Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketray.base.cluster import Cluster, chosen_node

from .connected_client import ConnectedClient
from .joined_node import join_node
from .ray_transport import RayTransport


class Connection(ConnectedClient):
    """A process's link to one node over Ray, for what is part of a Ray; see :meth:`open`."""

    def __init__(self, transport: RayTransport) -> None:
        super().__init__(transport)
        self.transport = transport

    @classmethod
    def open(
        cls,
        data: Path | str | None = None,
        *,
        cluster: str | None = None,
        ray_address: str | None = None,
    ) -> Connection:
        """Connect to the node on *data*, or to that of *cluster* on a Ray (base/cluster.py).

        Raises:
            ConfigError: *data* is empty, or no path; or both are given.
            NodeNotRunningError: no such node runs. NodeElsewhereError: the node on *data* runs on
                another machine.
        """
        return cls.to(chosen_node(data, cluster, ray_address))

    @classmethod
    def to(cls, place: Path | Cluster) -> Connection:
        """Connect to the node of a data directory, or of a cluster; raises as :meth:`open`."""
        return Connection(join_node(place))

    @property
    def node(self) -> Mapping[str, Any] | None:
        """The content of node.json; None if the node was found by its cluster's name."""
        return self.transport.node
