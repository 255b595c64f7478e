"""What a node tells about itself at one time; a part that does not answer is unknown, and not 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from rocketray.actors.api.node_client import NodeClient, lag_of, of_disks_there
from rocketray.actors.filtering.filtered_lag import FilteredLag
from rocketray.actors.groups.group_descriptions import GroupDescription
from rocketray.actors.shards.shard_api import ShardStatistics
from rocketray.errors import StreamError

__all__ = ["NodeReadings", "read_node"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class NodeReadings:
    """A node at one time.

    ``topics`` is the number of topics. ``shards`` are those of each topic, ``lags`` those of each
    group and topic, by queue. ``unknown`` has a reason for each part that did not answer: its
    numbers are missing.
    """

    cluster: str
    topics: int
    shards: Mapping[str, Sequence[ShardStatistics]]
    groups: Sequence[GroupDescription] | None = None
    lags: Mapping[tuple[str, str], Mapping[int, FilteredLag]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


def read_node(node: NodeClient) -> NodeReadings:
    """Ask a node; raises ``ShardUnavailableError`` if its coordinator does not answer."""
    node = of_disks_there(node)
    topics = node.topics.all()
    unknown = {f"disk {disk}": "its machine does not answer" for disk in sorted(node.away)}

    def ask(what: str, question: Callable[[], _T]) -> _T | None:
        try:
            return question()
        except (StreamError, OSError) as error:
            unknown[what] = str(error)
            return None

    shards = {}
    for name in sorted(topics):
        found = ask(f"topic {name}", partial(node.shard_statistics, name))
        if found is not None:
            shards[name] = found
    groups = ask("groups", node.groups.all)
    lags = {}
    for group in groups or ():
        if not group.is_broadcast:
            what = f"lag of group {group.group} on topic {group.topic}"
            lag = ask(what, partial(lag_of, node, group))
            if lag is not None:
                lags[group.group, group.topic] = lag
    return NodeReadings(node.cluster, len(topics), shards, groups, lags, unknown)
