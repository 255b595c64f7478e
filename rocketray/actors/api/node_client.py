"""A client of a node, over any transport: the node's calls by subject.

Calls that need no work of the client are those of the interface that the node's process implements.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from rocketray.actors.calls.endpoint import CallTransport, client_of
from rocketray.actors.filtering.filter_api import FILTERS, FilterApi
from rocketray.actors.groups.groups_api import GROUPS, SESSIONS, GroupsApi, SessionsApi
from rocketray.actors.runtime.clock import system_clock_ms
from rocketray.actors.shards.shard_api import ShardApi, ShardStatistics, shard_of, shards_of
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.actors.topics.topics import TOPICS, Topics
from rocketray.cluster import DEFAULT_CLUSTER
from rocketray.errors import NodeElsewhereError

from .node_messages import NodeMessages
from .system_api import DELAYS, TRANSACTIONS, NodeDelays, NodeTransactions

__all__ = ["NodeClient"]


class NodeClient:
    """The calls of the node on one data directory."""

    def __init__(
        self,
        data: Path,
        transport: CallTransport,
        clock_ms: Callable[[], int] = system_clock_ms,
        cluster: str = DEFAULT_CLUSTER,
    ) -> None:
        self.data = data
        self.cluster = cluster
        """The name of the node's cluster on its Ray."""
        self.clock_ms = clock_ms
        """Return the node's clock in milliseconds since 1970; tests of the testing kit move it."""
        self._transport = transport
        self.topics = Topics(client_of(transport, TOPICS))
        """The calls about topics."""
        self.groups: GroupsApi = client_of(transport, GROUPS)
        """The calls about consumer groups."""
        self.sessions: SessionsApi = client_of(transport, SESSIONS)
        """The calls of group members."""
        self.filters: FilterApi = client_of(transport, FILTERS)
        """The calls of the filter actor."""
        self.messages = NodeMessages(transport, self.topics)
        """The lookups of stored messages."""
        self.transactions = NodeTransactions(client_of(transport, TRANSACTIONS), self.topics)
        """The calls about transactions."""
        self.delays = NodeDelays(client_of(transport, DELAYS))
        """The calls about delayed messages."""

    def shard_calls(self, topic: TopicConfig, queue_id: int) -> ShardApi:
        """Return the calls of a shard."""
        return client_of(self._transport, shard_of(topic, queue_id))

    def shard_statistics(self, topic: str) -> list[ShardStatistics]:
        """Return the counters of a topic's shards, by queue."""
        shards = shards_of(self.topics.get(topic))
        return self._transport.call_each(shards, ShardApi.statistics)

    def in_background(self, run: Callable[[], None]) -> None:
        """Run a function that makes calls beside the caller; see :class:`CallTransport`."""
        self._transport.in_background(run)

    def is_local(self) -> bool:
        """Return whether this process is on the node's machine, and can map the shards' memory."""
        return self._transport.is_local()

    def files(self, use: str) -> Path:
        """Return the data directory, for a *use* that reads its files.

        Raises:
            NodeElsewhereError: this process is not on the node's machine.
        """
        if self._transport.has_files():
            return self.data
        raise NodeElsewhereError(
            f"{use} is not supported yet from another machine than the node's: it reads the files "
            f"of {self.data} there, and this is {socket.gethostname()}; do it on that machine"
        )
