"""The messages that topics stored today and yesterday, from a call to each shard process.

Days begin at midnight in the zone of the node: that of its first process that answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rocketray.broker.shards.day_counts import DayCounts
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.errors import StreamError
from rocketray.messaging.api.node_client import NodeClient, of_disks_there
from rocketray.messaging.api.node_messages import processes_there


@dataclass(frozen=True, slots=True)
class DayTotals:
    """What a topic stored; a number that ``is_least`` lacks what retention removed."""

    today: int
    yesterday: int
    today_is_least: bool
    yesterday_is_least: bool


@dataclass(frozen=True, slots=True)
class DayReadings:
    """The totals of topics, or why they are unknown; and when the days began, in ms since 1970.

    ``yesterday_ms`` and ``today_ms`` are None if no process answered.
    """

    yesterday_ms: int | None = None
    today_ms: int | None = None
    topics: Mapping[str, DayTotals | str] = field(default_factory=dict)


def read_days(node: NodeClient, topics: Mapping[str, TopicConfig]) -> DayReadings:
    """Ask the processes of *topics*; a topic with a queue that does not answer is unknown."""
    node = of_disks_there(node)
    only = next(iter(topics)) if len(topics) == 1 else None
    days: tuple[int, int] | None = None
    answers: dict[tuple[str, int], DayCounts] = {}
    silent: dict[str, str] = {}
    for process in processes_there(topics.values(), node.away):
        calls = node.process_calls(process)
        try:
            days = days or calls.midnights()
            for each in calls.stored_by_day(*days, only):
                answers[each.topic, each.queue_id] = each
        except (StreamError, OSError) as error:
            silent[process] = str(error)
    yesterday_ms, today_ms = days or (None, None)
    totals = {name: _total(topic, answers, silent) for name, topic in topics.items()}
    return DayReadings(yesterday_ms, today_ms, totals)


def _total(
    topic: TopicConfig, answers: Mapping[tuple[str, int], DayCounts], silent: Mapping[str, str]
) -> DayTotals | str:
    queues = range(topic.queues)
    for queue_id in queues:
        if (topic.name, queue_id) not in answers:
            why = silent.get(topic.process_of(queue_id), "it does not answer")
            return f"queue {queue_id}: {why}"
    return _sum(answers[topic.name, queue_id] for queue_id in queues)


def _sum(counts: Iterable[DayCounts]) -> DayTotals:
    found = [*counts]
    return DayTotals(
        sum(each.today for each in found),
        sum(each.yesterday for each in found),
        any(each.today_is_least for each in found),
        any(each.yesterday_is_least for each in found),
    )
