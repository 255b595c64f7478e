"""A client of the node on this machine that does not join Ray: for commands."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, Unpack

from rocketray.filters.filter_name import FilterName
from rocketray.filters.subscription import Subscription
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.calls.endpoint import client_of
from rocketray.runtime.one_process import OfOneProcess
from rocketray.services.explaining.explanation import Explanation

from .local_transport import LocalTransport
from .node_api import NODE
from .node_process_api import NODE_PROCESS
from .reconnecting_transport import ReconnectingTransport

if TYPE_CHECKING:
    from rocketray.groups.member_options import MemberOptions
    from rocketray.messaging.consumers.member import GroupConsumer
    from rocketray.messaging.producers.producer import NodeProducer
    from rocketray.messaging.producers.producer_options import ProducerOptions


class LocalClient(OfOneProcess, NodeClient, what="client"):
    """The calls of a node over its own socket, as :class:`Connection` has them over Ray.

    What loads Arrow, NumPy or Numba is imported where it is called: most commands need none of it,
    and it takes longer than their work.
    """

    def __init__(self, transport: LocalTransport | ReconnectingTransport) -> None:
        """Take over an open *transport*."""
        super().__init__(transport.coordinator_data, transport, cluster=transport.cluster)
        self.transport = transport
        self._process = client_of(transport, NODE_PROCESS)
        node = client_of(transport, NODE)
        self.problems = node.problems
        self.unflushed = node.unflushed
        self.scrubs = node.scrubs

    def explain(
        self, message: str, group: str | None = None, topic: str | None = None
    ) -> Explanation:
        """See :meth:`Connection.explain`; the node's process looks."""
        return self._process.explain(message, group, topic)

    def doubts(self, topics: Sequence[str], subscription: Subscription) -> list[str]:
        return self._process.doubts(topics, subscription)

    def producer(self, **options: Unpack[ProducerOptions]) -> NodeProducer:
        """Return a new producer, which its caller closes; see ProducerOptions."""
        from rocketray.messaging.producers.producer import NodeProducer  # noqa: PLC0415 - slow

        return NodeProducer(self, first_turn=uuid.uuid4().time_low, **options)

    def consumer(
        self,
        group: str,
        topic: str,
        subscription: Subscription | FilterName,
        **options: Unpack[MemberOptions],
    ) -> GroupConsumer:
        """Return a new member of *group*, which its caller closes; see :func:`new_member`.

        Heartbeats need a :class:`ReconnectingTransport`.
        """
        from .new_member import new_member  # noqa: PLC0415 - slow

        return new_member(self, group, topic, subscription, **options)

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Self:
        """Return the client itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
