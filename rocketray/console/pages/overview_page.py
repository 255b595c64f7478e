"""The overview: what is wrong, the worst first, and what flows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from rocketray.base.names import RETRY_PREFIX
from rocketray.base.system_topics import is_internal_by_name, is_system_topic
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.messaging.api.node_client import NodeClient
from rocketray.services.health.health import read_health
from rocketray.services.health.node_readings import NodeReadings
from rocketray.services.health.troubles import HealthReadings, Trouble, troubles_of
from rocketray.views.trouble_records import trouble_record, troubles_of_hosts

from .page_context import PageContext, Query, known, unread_record

_ROWS_MAX = 20  # of topics, and of groups: a page for each of them has all
_TROUBLES_MAX = 50  # "rocketray status" has all


class Look(NamedTuple):
    """A look at a node for what is wrong; ``hosts`` are those of apps, None if not known."""

    health: HealthReadings
    hosts: list[dict[str, Any]] | None
    troubles: list[Trouble]


def look(node: NodeClient, context: PageContext) -> Look:
    """Look at all that troubles are found in, as ``status`` does."""
    health = read_health(node, context.samples.growth())
    hosts, unknown = known(partial(context.host_records, node))
    return Look(health, hosts, troubles_of(health, troubles_of_hosts(hosts or [], unknown)))


def overview(node: NodeClient, _query: Query, context: PageContext) -> dict[str, Any]:
    """Return the troubles of the node as ``status``, what was looked at, and rates and lags.

    ``topics`` are those with the highest rate, ``groups`` those with trouble and the greatest lag.
    ``more`` says how many of each are left out.
    """
    health, hosts, troubles = look(node, context)
    readings = health.node
    topics, groups = _topics(readings, context), _groups(readings, troubles)
    return {
        "troubles": [trouble_record(each) for each in troubles[:_TROUBLES_MAX]],
        "looked": {
            "topics": readings.topics,
            "groups": len({group.group for group in readings.groups or ()}),
            "hosts": len(hosts or ()),
        },
        "askedForProblems": health.problems is not None,
        "topics": [_topic_row(name, context) for name in topics[:_ROWS_MAX]],
        "groups": [_group_row(health, group, context) for group in groups[:_ROWS_MAX]],
        "more": {
            "troubles": max(0, len(troubles) - _TROUBLES_MAX),
            "topics": max(0, len(topics) - _ROWS_MAX),
            "groups": max(0, len(groups) - _ROWS_MAX),
        },
    }


def _topics(readings: NodeReadings, context: PageContext) -> list[str]:
    """Return the names of users' topics, the busiest first."""
    names = [
        name
        for name in readings.shards
        if not is_system_topic(name) and not is_internal_by_name(name)
    ]
    return sorted(names, key=lambda name: (-(context.samples.rate(name) or 0.0), name))


def _topic_row(name: str, context: PageContext) -> dict[str, Any]:
    samples = context.samples
    return {"topic": name, "rate": samples.rate(name), "hour": samples.stored_series(name)}


def _groups(readings: NodeReadings, troubles: Sequence[Trouble]) -> list[GroupDescription]:
    """Return the groups, those with the worst trouble first, then by lag."""
    rank: dict[str | None, int] = {}
    for number, trouble in enumerate(troubles):
        rank.setdefault(trouble.group, number)

    def place(group: GroupDescription) -> tuple[int, int, str, str]:
        lag = readings.lag_of(group.group, group.topic)
        count = 0 if isinstance(lag, str) else lag.count
        return rank.get(group.group, len(troubles)), -count, group.group, group.topic

    return sorted(
        (
            group
            for group in readings.groups or ()
            if not group.is_broadcast and not group.topic.startswith(RETRY_PREFIX)
        ),
        key=place,
    )


def _group_row(
    health: HealthReadings, group: GroupDescription, context: PageContext
) -> dict[str, Any]:
    """Return a group's lag, the age of its oldest unread message, and what it does."""
    place = group.group, group.topic
    lag = health.node.lag_of(*place)
    row = {
        "group": group.group,
        "topic": group.topic,
        "rate": context.samples.finish_rate(*place),
        "hour": context.samples.series(*place),
    }
    found, unknown = (None, lag) if isinstance(lag, str) else (lag, None)
    return row | {
        "lag": found and found.count,
        "unknown": unknown,
        **unread_record(group, found, health.node.time_ms, health.growth.get(place)),
    }
