"""A client of a node, over any transport: the node's calls by subject.

Calls that need no work of the client are those of the interface that the node's process implements.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.broker.disks.disks_api import DISKS, DisksApi
from rocketray.broker.fetching.range_api import PlaceApi, RangeApi, place_of, ranges_of
from rocketray.broker.filtering.filter_api import FilterApi, filters_of
from rocketray.broker.filtering.filtered_lag import FilteredLag
from rocketray.broker.named_filters.named_filters_api import NAMED_FILTERS, NamedFiltersApi
from rocketray.broker.retries.dead_letter_api import DEAD_LETTERS, DeadLettersApi
from rocketray.broker.shards.shard_api import (
    ShardApi,
    ShardProcessApi,
    ShardStatistics,
    process_of,
    shard_of,
)
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.topics import TOPICS, Topics
from rocketray.errors import (
    NodeElsewhereError,
    ShardUnavailableError,
    StreamError,
    TopicNotFoundError,
)
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.groups.groups_api import GROUPS, SESSIONS, GroupsApi, SessionsApi
from rocketray.runtime.calls.endpoint import CallTransport, client_of
from rocketray.runtime.clock import system_clock_ms

from .node_messages import NodeMessages, queues_there
from .system_api import NodeDelays, NodeTransactions

# A disk that is unknown may be about to join, so callers retry as for one whose machine is down.
# 256 groups of four queues take the filter actor a quarter of a second. With a call for each, a
# reading of 4,000 queues took 10 s; it takes 0.5 s so.
_GROUPS_A_CALL = 256


class NodeClient:
    """The calls of a cluster: to its coordinator, and to the actors of one of its disks."""

    def __init__(
        self,
        data: Path,
        transport: CallTransport,
        clock_ms: Callable[[], int] = system_clock_ms,
        cluster: str = DEFAULT_CLUSTER,
        disk: str = "",
        *,
        away: frozenset[str] = frozenset(),
    ) -> None:
        """Take the data directory on *disk*; without a name it is the coordinator's disk.

        Lookups in several queues leave out those on disks that are *away*.
        """
        self.data = data
        self.away = away
        """The disks that lookups leave out."""
        self.disk = disk
        """The name of the disk; see :meth:`at` for the others."""
        self.cluster = cluster
        """The name of the node's cluster on its Ray."""
        self.clock_ms = clock_ms
        """Return the node's clock in milliseconds since 1970; tests of the testing kit move it."""
        self._transport = transport
        self.topics: Topics = Topics(client_of(transport, TOPICS))
        """The calls about topics."""
        self.groups: GroupsApi = client_of(transport, GROUPS)
        """The calls about consumer groups."""
        self.sessions: SessionsApi = client_of(transport, SESSIONS)
        """The calls of group members."""
        self.named_filters: NamedFiltersApi = client_of(transport, NAMED_FILTERS)
        """The calls about named filters of topics."""
        self.filters: FilterApi = client_of(transport, filters_of(disk))
        """The calls of the disk's filter actor."""
        self.ranges: RangeApi = client_of(transport, ranges_of(disk))
        """The calls about the disk's fetch service."""
        self.service: PlaceApi = client_of(transport, place_of(disk))
        """Finds the disk's fetch service."""
        self.disks: DisksApi = client_of(transport, DISKS)
        """The calls about the disks of the cluster."""
        self.letters: DeadLettersApi = client_of(transport, DEAD_LETTERS)
        """The calls about dead letters; ``dead_letters`` makes them where that is needed."""
        self.messages: NodeMessages = NodeMessages(transport, self.topics, away)
        """The lookups of stored messages."""
        self.transactions: NodeTransactions = NodeTransactions(transport, self.topics, self.disks)
        """The calls about transactions."""
        self.delays: NodeDelays = NodeDelays(transport, self.topics)
        """The calls about delayed messages."""
        self.process_calls = partial(_process_calls, transport)
        """Return the calls of a shard process, by its name."""

    def shard_calls(self, topic: TopicConfig, queue_id: int) -> ShardApi:
        """Return the calls of a queue's shard, on whichever disk it is; makes none itself."""
        return client_of(self._transport, shard_of(topic, queue_id))

    def shard_statistics(self, topic: str) -> list[ShardStatistics]:
        """Return the counters of a topic's shards, by queue."""
        config = self.topics.get(topic)
        there = queues_there(config, self.away)
        shards = [shard_of(config, queue_id) for queue_id in there]
        return self._transport.call_each(shards, ShardApi.statistics)

    def at(self, disk: str, away: frozenset[str] | None = None) -> NodeClient:
        """Return a client for the files and the filter actor of another disk.

        Its lookups leave out the disks that are *away*, by default the same as those of this one.

        Raises:
            ShardUnavailableError: the cluster has no such disk.
        """
        away = self.away if away is None else away
        if (disk, away) == (self.disk, self.away):
            return self
        home = self.disks.homes().get(disk)
        if home is None:
            reason = f"cluster {self.cluster!r} has no such disk"
            raise ShardUnavailableError(f"disk {disk}", reason)
        place = Path(home.data), self._transport, self.clock_ms, self.cluster, disk
        return NodeClient(*place, away=away)

    def in_background(self, run: Callable[[], None]) -> None:
        """Run a function that makes calls beside the caller; see :class:`CallTransport`."""
        self._transport.in_background(run)

    def is_local(self) -> bool:
        """Return whether this process is on the disk's machine, and can map the shards' memory."""
        return self._transport.is_local(self.disk)

    def files(self, use: str, topic: TopicConfig | None = None) -> Path:
        """Return the data directory, for a *use* that reads its files, such as those of *topic*.

        Raises:
            NodeElsewhereError: this process is not on the disk's machine, or queues of the topic
                are on other disks.
        """
        if topic is not None and {*topic.by_disk()} != {self.disk}:
            raise NodeElsewhereError(
                f"{use} is not supported yet for topic {topic.name!r}: it reads the files of all "
                "queues on one disk, and the topic has queues on several; see: rocketray topology"
            )
        if self._transport.has_files(self.disk):
            return self.data
        raise NodeElsewhereError(
            f"{use} is not supported yet from another machine than the node's: it reads the files "
            f"of {self.data} there, and this is {socket.gethostname()}; do it on that machine"
        )


def _process_calls(transport: CallTransport, process: str) -> ShardProcessApi:
    return client_of(transport, process_of(process))


def of_disks_there(node: NodeClient) -> NodeClient:
    """Return a client whose lookups leave out disks that do not answer; its ``away`` has them.

    Without it, a lookup fails if one of its queues is on such a disk.
    """
    if not any(topic.disks for topic in node.topics.all().values()):
        return node  # all queues are on the first disk: there is none that could be left out
    return node.at(node.disk, frozenset(node.disks.homes().keys() - node.disks.reports().keys()))


def lag_of(node: NodeClient, group: GroupDescription) -> dict[int, FilteredLag]:
    """Return a group's lag in each queue of its topic that has an offset, from all disks.

    Raises:
        StreamError: it is unknown, for example because one of the disks does not answer.
    """
    [found] = lags_of(node, [group], {group.topic: node.topics.get(group.topic)})
    if isinstance(found, StreamError):
        raise found
    return found


def lags_of(
    node: NodeClient, groups: Sequence[GroupDescription], topics: Mapping[str, TopicConfig]
) -> list[dict[int, FilteredLag] | StreamError]:
    """Return the lag of each of many groups, or why it is unknown: few calls to each disk.

    *topics* are those of the node by name.
    """
    found: list[dict[int, FilteredLag] | StreamError] = [{} for _ in groups]
    by_disk: dict[str, dict[int, GroupDescription]] = {}
    for number, group in enumerate(groups):
        if group.topic not in topics:
            found[number] = TopicNotFoundError(group.topic)
            continue
        for disk, queues in topics[group.topic].by_disk(group.offsets).items():
            there = {queue: group.offsets[queue] for queue in queues}
            by_disk.setdefault(disk, {})[number] = replace(group, offsets=there)
    for disk, asked in by_disk.items():
        for number, lag in zip(asked, _lags_on(node, disk, [*asked.values()]), strict=True):
            so_far = found[number]
            # The sum of the disks that do answer would look like a smaller lag: an error stays.
            if isinstance(so_far, dict):
                found[number] = lag if isinstance(lag, StreamError) else so_far | lag
    return found


def _lags_on(
    node: NodeClient, disk: str, groups: Sequence[GroupDescription]
) -> Sequence[dict[int, FilteredLag] | StreamError]:
    """Return the lags of groups on one disk, or the error of a disk that does not answer."""
    try:
        filters = node.at(disk).filters
        parts = [groups[at : at + _GROUPS_A_CALL] for at in range(0, len(groups), _GROUPS_A_CALL)]
        return [lag for part in parts for lag in filters.lags(part)]
    except StreamError as error:
        return [error] * len(groups)
