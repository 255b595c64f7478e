"""The overview: what is wrong, the worst first, and what flows."""

from __future__ import annotations

from functools import partial
from typing import Any

from rocketray.base.names import RETRY_PREFIX
from rocketray.base.system_topics import is_internal_by_name, is_system_topic
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.messaging.api.node_client import NodeClient
from rocketray.services.health.health import read_health
from rocketray.services.health.node_readings import NodeReadings, lag_part
from rocketray.services.health.troubles import Trouble, time_until_read, troubles_of
from rocketray.views.trouble_records import trouble_record, troubles_of_hosts

from .page_context import PageContext, Query, known

_ROWS_MAX = 20  # of topics, and of groups: the busiest, and those with the greatest lag


def overview(node: NodeClient, _query: Query, context: PageContext) -> dict[str, Any]:
    """Return the troubles of the node as ``status``, what was looked at, and rates and lags.

    ``topics`` are those with the highest rate, ``groups`` those with the greatest lag.
    """
    health = read_health(node, context.samples.growth())
    hosts, unknown = known(partial(context.host_records, node))
    others = troubles_of_hosts(hosts or [], unknown)
    troubles = troubles_of(health, others)
    readings = health.node
    return {
        "troubles": [trouble_record(each) for each in troubles],
        "looked": {
            "topics": readings.topics,
            "groups": len({each.group for each in readings.groups or ()}),
            "hosts": len(hosts or ()),
            "letters": sum(box.letters - box.redriven for box in health.letters or ()),
        },
        "askedForProblems": health.problems is not None,
        "topics": _topics(readings, context),
        "groups": _groups(readings, context, troubles),
    }


def _topics(readings: NodeReadings, context: PageContext) -> list[dict[str, Any]]:
    """Return the topics of users with their rates, the busiest first."""
    names = [name for name in readings.shards if not _is_own(name)]
    rates = {name: context.samples.rate(name) for name in names}
    names.sort(key=lambda name: (-(rates[name] or 0.0), name))
    return [
        {"topic": name, "rate": rates[name], "hour": context.samples.stored_series(name)}
        for name in names[:_ROWS_MAX]
    ]


def _groups(
    readings: NodeReadings, context: PageContext, troubles: list[Trouble]
) -> list[dict[str, Any]]:
    """Return the groups with their lag, those with trouble first, then by lag."""
    growth = context.samples.growth()
    rank = {(each.group, each.topic): at for at, each in reversed([*enumerate(troubles)])}
    rows: list[dict[str, Any]] = []
    for group in readings.groups or ():
        place = group.group, group.topic
        if group.is_broadcast or group.topic.startswith(RETRY_PREFIX):
            continue
        queues = readings.lags.get(place)
        lag = None if queues is None else sum(one.count for one in queues.values())
        ages = [
            readings.time_ms - one.oldest_ms for one in (queues or {}).values() if one.oldest_ms
        ]
        rows.append(
            {
                "group": group.group,
                "topic": group.topic,
                "lag": lag,
                "unknown": readings.unknown.get(lag_part(*place)),
                "oldestMs": max(ages, default=None) if lag else None,
                "rate": context.samples.finish_rate(*place),
                "readInS": _time_until_read(group, lag, growth.get(place)),
                "hour": context.samples.series(*place),
            }
        )
    last = len(troubles)
    rows.sort(
        key=lambda row: (
            rank.get((row["group"], row["topic"]), last),
            -(row["lag"] or 0),
            row["group"],
        )
    )
    return rows[:_ROWS_MAX]


def _time_until_read(
    group: GroupDescription, lag: int | None, growth: float | None
) -> float | None:
    """Return in how many seconds the lag is gone; None if it is not, or a queue is held."""
    return time_until_read(lag, growth) if lag and not group.failing else None


def _is_own(name: str) -> bool:
    return is_system_topic(name) or is_internal_by_name(name)
