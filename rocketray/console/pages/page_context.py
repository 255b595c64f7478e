"""What pages need beside the node, and how they say that something is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rocketray.broker.filtering.filtered_lag import FilteredLag
from rocketray.broker.shards.shard_api import ShardStatistics
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.console.changes.group_jobs import GroupJob
from rocketray.console.facts.samples import Samples
from rocketray.errors import ConfigError, StreamError
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.messaging.api.node_client import NodeClient
from rocketray.services.health.troubles import time_until_read

Query = Mapping[str, str]
_T = TypeVar("_T")


@dataclass(slots=True)
class PageContext:
    """What pages need beside the node: the samples, the hosts of apps, and a disk's directory.

    ``data`` is None on a machine without a disk of the cluster.
    """

    data: Path | None
    samples: Samples
    host_records: Callable[[NodeClient], list[dict[str, Any]]] = lambda _: []
    doctor_records: Callable[[], list[dict[str, Any]]] = list
    jobs: Mapping[str, Any] = field(default_factory=dict)
    change_of: Callable[[str], GroupJob | None] = lambda _: None
    trace_url: str | None = None
    sent: Callable[[str], dict[str, Any] | None] = lambda _: None


def known(question: Callable[[], _T]) -> tuple[_T | None, str | None]:
    """Return the answer; or None and the reason why it is unknown."""
    try:
        return question(), None
    except (StreamError, OSError) as error:
        return None, str(error)


def unread_record(
    group: GroupDescription, lag: FilteredLag | None, now_ms: int, growth_per_s: float | None
) -> dict[str, Any]:
    """Return the age of a group's oldest unread message, and how long it takes at this rate.

    Each is None if nothing is unread, or if it is not known. A group that is held, or whose lag
    does not get smaller, is never caught up at this rate.
    """
    if lag is None or not lag.count:
        return {"oldestMs": None, "readInS": None}
    growth = None if group.failing else growth_per_s
    return {"oldestMs": lag.age_ms(now_ms), "readInS": time_until_read(lag.count, growth)}


def named(query: Query, name: str, check: Callable[[str], str]) -> str:
    """Return a checked name of an address; raises ConfigError without one."""
    given = query.get(name, "")
    if not given:
        raise ConfigError(f"the address has no {name}: choose one on its page")
    return check(given)


def shards_of(
    node: NodeClient, config: TopicConfig
) -> tuple[Sequence[ShardStatistics] | None, str | None]:
    """Return the statistics of all shards of a topic; or None and the reason."""
    shards, unknown = known(partial(node.shard_statistics, config.name))
    if shards is not None and len(shards) < config.queues:
        return None, "the machine of a disk does not answer"
    return shards, unknown
