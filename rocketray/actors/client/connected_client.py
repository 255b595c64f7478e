"""A program's link to one node, whatever carries its calls: the node's own socket, or Ray.

On the node's machine it is the socket, and the program imports no Ray: to join one takes seconds,
and a Ray that ends may end the process. Elsewhere, and where the socket does not answer, it is Ray.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, Unpack

from rocketray.base.cluster import Cluster
from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.calls.endpoint import CallTransport, client_of
from rocketray.runtime.one_process import OfOneProcess
from rocketray.services.explaining.explanation import Explanation

from .finding import find_node
from .local_transport import LocalTransport
from .node_api import NODE
from .node_process_api import NODE_PROCESS, NodeProcessApi
from .reconnecting_transport import ReconnectingTransport

if TYPE_CHECKING:
    from rocketray.groups.member_options import MemberOptions
    from rocketray.messaging.consumers.member import GroupConsumer
    from rocketray.messaging.producers.producer import NodeProducer
    from rocketray.messaging.producers.producer_options import ProducerOptions


class ClientTransport(CallTransport, Protocol):
    """The way of a program's calls to the node that it found."""

    @property
    def coordinator_data(self) -> Path:
        """The data directory of the coordinator's disk."""

    @property
    def cluster(self) -> str:
        """The name of the node's cluster."""

    def keep(self, producer: NodeProducer, /) -> None:
        """Tell *producer* if the node is lost in a way that its calls would not show."""

    def close(self) -> None:
        """End the way; calls under way end first."""


def open_transport(place: Path | Cluster) -> ClientTransport:
    """Return the transport to the node of a data directory, or of a cluster.

    Raises:
        NodeNotRunningError: no such node runs. NodeElsewhereError: the node of the directory runs
            on another machine. ActorError: it is of another release.
    """
    if isinstance(place, Path):
        directory = place.resolve()
        local = ReconnectingTransport.open(directory)
        if local is not None:
            return local
        find_node(directory)  # raises, before Ray is loaded, where there is none to join
    from .joined_node import join_node  # noqa: PLC0415  # imports Ray

    return join_node(place)


class ConnectedClient(OfOneProcess, NodeClient, what="client"):
    """The calls of a node; safe to use from several threads.

    What loads Arrow, NumPy or Numba is imported where it is called: most commands need none of it,
    and it takes longer than their work.
    """

    def __init__(self, transport: ClientTransport) -> None:
        """Take over an open *transport*."""
        super().__init__(transport.coordinator_data, transport, cluster=transport.cluster)
        node = client_of(transport, NODE)
        self._link = transport
        self.problems: Callable[[], list[str]] = node.problems
        """Return the problems of the node, a line each; none when it is healthy."""
        self.unflushed = node.unflushed
        self.scrubs = node.scrubs
        self._producers: list[NodeProducer] = []

    def producer(self, **options: Unpack[ProducerOptions]) -> NodeProducer:
        """Return a new producer, which is closed with the client; see ProducerOptions."""
        from rocketray.messaging.producers.producer import NodeProducer  # noqa: PLC0415 - slow

        producer = NodeProducer(self, first_turn=uuid.uuid4().time_low, **options)
        self._link.keep(producer)
        self._producers.append(producer)
        return producer

    def consumer(
        self,
        group: str,
        topic: str,
        subscription: Subscription | FilterName,
        **options: Unpack[MemberOptions],
    ) -> GroupConsumer:
        """Return a new member of *group*, which its caller closes; see :func:`new_member`.

        Its heartbeats need a transport that connects again, so no :class:`LocalTransport`.
        """
        from .new_member import new_member  # noqa: PLC0415 - slow

        return new_member(self, group, topic, subscription, **options)

    def explain(
        self, message: str, group: str | None = None, topic: str | None = None
    ) -> Explanation:
        """Explain why the message with id or key *message* was, or was not, delivered to *group*.

        Without a group, only the outcome of the message itself. Changes nothing. A key is looked up
        in *topic*, else in the topics of the group.
        """
        if self._process is not None:
            return self._process.explain(message, group, topic)
        from rocketray.services.explaining.inquiry import inquire  # noqa: PLC0415 - slow

        return inquire(self, message, group, topic)

    def doubts(self, topics: Sequence[str], subscription: Subscription) -> list[str]:
        """Return doubts about a filter of *topics* (filter_advice.py).

        Raises:
            NodeElsewhereError: it reads files, which are on another machine.
        """
        if self._process is not None:
            return self._process.doubts(topics, subscription)
        from rocketray.broker.filtering.filter_advice import doubts  # noqa: PLC0415 - slow

        return doubts(self.files("comparing a filter"), topics, subscription)

    def close(self) -> None:
        """Close the producers created here, and end the link."""
        producers, self._producers = self._producers, []
        try:
            for producer in producers:
                producer.close()
        finally:
            self._link.close()

    @property
    def _process(self) -> NodeProcessApi | None:
        """The node's process, which looks for its clients; over Ray, they look themselves."""
        if isinstance(self._link, LocalTransport | ReconnectingTransport):
            return client_of(self._link, NODE_PROCESS)
        return None

    def __enter__(self) -> Self:
        """Return the client itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_client(place: Path | Cluster) -> ConnectedClient:
    """Connect to the node of a directory, or of a cluster; raises as :func:`open_transport`."""
    return ConnectedClient(open_transport(place))


class LocalClient(ConnectedClient):
    """A client on the node's machine that has no Ray, for commands."""

    def __init__(self, transport: LocalTransport | ReconnectingTransport) -> None:
        super().__init__(transport)
        self.transport = transport
