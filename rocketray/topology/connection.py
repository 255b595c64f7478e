"""The interface of a node to an app: members of groups, a producer, and topics.

A connection and the test kit's broker implement it. Every method may block, so an app calls them
from threads of its own. The one exception is ``GroupConsumer.commit``, which is local and cheap.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, Unpack

from rocketray.runtime.signal_handlers import restore_signal_handlers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rocketray.base.ack_mode import AckMode
    from rocketray.base.cluster import Cluster
    from rocketray.broker.named_filters.named_filters_api import NamedFiltersApi
    from rocketray.broker.topics.topics import Topics
    from rocketray.filters.subscription import Subscription
    from rocketray.groups.groups_api import GroupsApi, SessionsApi
    from rocketray.groups.member_options import MemberOptions
    from rocketray.messaging.api.node_client import NodeClient
    from rocketray.messaging.consumers.member import GroupConsumer
    from rocketray.messaging.producers.producer import NodeProducer


class AppNode(Protocol):
    """A node as an app sees it."""

    @property
    def data(self) -> Path:
        """The node's data directory, on the node's machine."""

    def files(self, use: str) -> Path:
        """Return the data directory; raise NodeElsewhereError if *use* of it is elsewhere."""

    def at(self, disk: str) -> NodeClient:
        """Return a client for a disk of the cluster."""

    def consumer(
        self, group: str, topic: str, subscription: Subscription, **options: Unpack[MemberOptions]
    ) -> GroupConsumer:
        """Join *group* as a new member."""

    def clock_ms(self) -> int:
        """Return the node's clock, in milliseconds since 1970."""

    def producer(self, *, ack: AckMode | None = ...) -> NodeProducer:
        """Return a producer; *ack*, or else a topic, says if stored means in memory or on disk."""

    @property
    def topics(self) -> Topics:
        """The node's topics."""

    @property
    def named_filters(self) -> NamedFiltersApi:
        """The calls about named filters of topics."""

    @property
    def groups(self) -> GroupsApi:
        """The calls about consumer groups."""

    @property
    def sessions(self) -> SessionsApi:
        """The calls of group members."""


class OneConnection:
    """The connection of an app, opened at its first use."""

    def __init__(self, node: AppNode | None = None) -> None:
        self.node = node
        """Used if it is set before the first use, instead of finding a node."""
        self._opening = asyncio.Lock()

    async def to(self, place: Callable[[], Path | Cluster]) -> AppNode:
        """Return it; callers at the same time wait for one: of two, one would never be closed."""
        if self.node is None:
            async with self._opening:
                if self.node is None:
                    self.node = await open_node(place())
        return self.node


async def open_node(place: Path | Cluster) -> AppNode:
    """Return a connection to the node of *place*, opened in a thread."""
    node = await asyncio.to_thread(_connect, place)
    restore_signal_handlers()
    return node


def _connect(place: Path | Cluster) -> AppNode:
    from rocketray.actors.client.connected_client import open_client  # noqa: PLC0415 - slow

    return open_client(place)
