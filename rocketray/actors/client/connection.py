"""A connection to a running node: the calls of its clients, over Ray and shared memory.

A connection finds the node by its data directory (DATA/node.json) or by the name of its cluster,
and joins its Ray.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack
from weakref import WeakSet

from rocketray.base.cluster import DEFAULT_CLUSTER, Cluster, chosen_node
from rocketray.errors import StreamError
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.groups.member_options import MemberOptions
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.consumers.member import GroupConsumer
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.producer_options import ProducerOptions
from rocketray.runtime.calls.endpoint import client_of
from rocketray.runtime.one_process import OfOneProcess
from rocketray.runtime.ray_process.ray_runtime import join_ray
from rocketray.services.explaining.explanation import Explanation
from rocketray.services.explaining.inquiry import inquire

from .client_ray import CLIENT_RAY
from .finding import find_cluster, find_node
from .new_member import new_member
from .node_api import NODE
from .ray_transport import RayTransport

_CONNECTIONS: WeakSet[Connection] = WeakSet()
"""The connections of this process, for :func:`lose_node`."""


os.register_at_fork(after_in_child=_CONNECTIONS.clear)  # a fork has no Ray: none can be lost there


def lose_node(data: Path, error: StreamError) -> None:
    """Have every connection of this process to the node on *data* raise *error* from now on."""
    for connection in list(_CONNECTIONS):
        if connection.data == data:
            connection.lose(error)


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


class Connection(OfOneProcess, NodeClient, what="client"):
    """A process's link to one node, created by :meth:`open`; safe to use from several threads."""

    def __init__(
        self, data: Path, cluster: str = DEFAULT_CLUSTER, node: Mapping[str, Any] | None = None
    ) -> None:
        """Connect to the node on the Ray that is joined; *node* is the content of node.json."""
        self.transport = RayTransport(data, cluster, node)
        super().__init__(data, self.transport, cluster=cluster)
        self.node = node
        """The content of node.json at first; None if the node was found by its cluster's name."""
        self._node = client_of(self.transport, NODE)
        self.unflushed = self._node.unflushed
        self.scrubs = self._node.scrubs
        self._producers: list[NodeProducer] = []
        _CONNECTIONS.add(self)

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
        if isinstance(place, Cluster):
            connection = Connection(Path(find_cluster(place).data), place.name)
        else:
            directory = place.resolve()
            CLIENT_RAY.enter(partial(_join_ray_of, directory))
            node = find_node(directory)
            # The node of a joined disk leads to the first disk, whose directory names the cluster.
            data = Path(str(node.get("coordinatorData", directory)))
            connection = Connection(data, str(node.get("cluster", DEFAULT_CLUSTER)), node)
        connection._stay()
        return connection

    def _stay(self) -> None:
        """Join Ray again when it was lost, as long as the connection exists.

        A node of this process watches its Ray itself.
        """
        if self.node is None or self.node.get("pid") != os.getpid():
            CLIENT_RAY.keep(self)

    def lose(self, error: StreamError) -> None:
        """Raise *error* from now on: Ray is lost, and a call would wait or start another Ray."""
        self.transport.lose(error)
        for producer in self._producers:
            producer.lose(error)

    def keep(self, producer: NodeProducer) -> None:
        """Close *producer* with the connection, and notify it when the node is lost."""
        self._producers.append(producer)

    def problems(self) -> list[str]:
        """Return the problems of the node, a line each; none when it is healthy."""
        return self._node.problems()

    def producer(self, **options: Unpack[ProducerOptions]) -> NodeProducer:
        """Return a new producer, which is closed with the connection; see ProducerOptions."""
        producer = NodeProducer(self, first_turn=uuid.uuid4().time_low, **options)
        self.keep(producer)
        return producer

    def consumer(
        self,
        group: str,
        topic: str,
        subscription: Subscription | FilterName,
        **options: Unpack[MemberOptions],
    ) -> GroupConsumer:
        """Return a new member of *group*; see :func:`new_member`."""
        return new_member(self, group, topic, subscription, **options)

    def explain(
        self, message: str, group: str | None = None, topic: str | None = None
    ) -> Explanation:
        """Explain why the message with id or key *message* was, or was not, delivered to *group*.

        Without a group, only the outcome of the message itself. Changes nothing. A key is looked up
        in *topic*, else in the topics of the group.
        """
        return inquire(self, message, group, topic)

    def close(self) -> None:
        """Close the producers created here."""
        for producer in self._producers:
            producer.close()
        self._producers.clear()

    def __enter__(self) -> Self:
        """Return the connection itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
