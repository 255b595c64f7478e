"""Rates and lag in ``rocketray status``: two samples of a node, and what happened between them.

What did not answer, began later, or was set back between the samples has no rate, and says why:
an unknown rate is not 0. The offsets of a group move when its members report, each second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from rocketray.base.json_fields import json_fields
from rocketray.base.system_topics import is_system_topic
from rocketray.cli.terminal.output import TextTable, emit
from rocketray.views.node_records import days_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketray.groups.group_descriptions import GroupDescription
    from rocketray.services.health.day_totals import DayReadings
    from rocketray.services.health.node_readings import NodeReadings

_GroupKey = tuple[str, str]
_TOPIC = "topic "  # before the name of a topic among the parts that are unknown
Unknown = str
"""Why a number is not known."""


@dataclass(frozen=True, slots=True)
class FlowSample:
    """A node at one time: the ends of topics, the offsets and the lags of groups, all summed.

    ``time_s`` is of a steady clock. A lag has its exactness.
    """

    time_s: float
    stored: Mapping[str, int | Unknown]
    finished: Mapping[_GroupKey, int | Unknown]
    lags: Mapping[_GroupKey, tuple[int, str] | Unknown] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicFlow:
    """Messages that were stored in a topic, a second; or why that is unknown."""

    topic: str
    stored_per_s: float | None
    unknown: Unknown | None = None


@dataclass(frozen=True, slots=True)
class GroupFlow:
    """Messages that a group went past, a second, and its lag; or why one of them is unknown."""

    group: str
    topic: str
    finished_per_s: float | None
    lag: int | None
    exactness: str | None = None
    unknown: Unknown | None = None


@dataclass(frozen=True, slots=True)
class Flows:
    """What happened in ``seconds``; None if there was one sample only, so no rate."""

    seconds: float | None
    topics: Sequence[TopicFlow]
    groups: Sequence[GroupFlow]

    def of(self, groups: Sequence[GroupDescription]) -> Flows:
        keys = {(each.group, each.topic) for each in groups}
        topics = {topic for _, topic in keys}
        return Flows(
            self.seconds,
            [each for each in self.topics if each.topic in topics],
            [each for each in self.groups if (each.group, each.topic) in keys],
        )


def sample_of(readings: NodeReadings, time_s: float) -> FlowSample:
    """Return the sample that *readings* of a node are, at a time of a steady clock."""
    stored: dict[str, int | Unknown] = {
        part.removeprefix(_TOPIC): why
        for part, why in readings.unknown.items()
        if part.startswith(_TOPIC)
    }
    for name, shards in readings.shards.items():
        stored[name] = sum(shard.max_queue_offset for shard in shards)
    finished: dict[_GroupKey, int | Unknown] = {}
    lags: dict[_GroupKey, tuple[int, str] | Unknown] = {}
    for group in readings.groups or ():
        if group.is_broadcast:
            continue
        key = group.group, group.topic
        finished[key] = sum(group.offsets.values())
        lag = readings.lag_of(*key)
        lags[key] = lag if isinstance(lag, Unknown) else (lag.count, lag.exactness.value)
    users = {name: end for name, end in stored.items() if not is_system_topic(name)}
    return FlowSample(time_s, users, finished, lags)


def growth_between(before: FlowSample | None, after: FlowSample) -> dict[_GroupKey, float]:
    """Return by how many messages a second each lag grew; without two known lags there is none."""
    seconds = 0.0 if before is None else after.time_s - before.time_s
    if before is None or seconds <= 0:
        return {}
    found = {}
    for key, lag in after.lags.items():
        earlier = before.lags.get(key)
        if not isinstance(lag, str) and earlier is not None and not isinstance(earlier, str):
            found[key] = (lag[0] - earlier[0]) / seconds
    return found


def flows_between(before: FlowSample | None, after: FlowSample) -> Flows:
    """Return the rates between two samples, if there are two, and the lags of the second."""
    seconds = None if before is None else after.time_s - before.time_s
    stored, finished = ({}, {}) if before is None else (before.stored, before.finished)
    topics = [
        TopicFlow(topic, *_rate(stored.get(topic), end, seconds))
        for topic, end in sorted(after.stored.items())
    ]
    groups = []
    for (group, topic), offset in sorted(after.finished.items()):
        rate, unknown = _rate(finished.get((group, topic)), offset, seconds)
        found = after.lags.get((group, topic), "it was not asked for")
        if isinstance(found, str):
            why = f"lag: {found}" if unknown is None else f"{unknown}; lag: {found}"
            groups.append(GroupFlow(group, topic, rate, None, unknown=why))
        else:
            groups.append(GroupFlow(group, topic, rate, *found, unknown))
    return Flows(seconds, topics, groups)


def show_flows(flows: Flows, days: DayReadings | None = None, *, as_json: bool) -> None:
    """Print two tables, and why something is unknown; as JSON, objects ``rates`` and ``stored``.

    *days* adds to each topic what it stored today and yesterday.
    """
    record = {
        "seconds": None if flows.seconds is None else round(flows.seconds, 3),
        "topics": [json_fields(each) for each in flows.topics],
        "groups": [json_fields(each) for each in flows.groups],
    }
    records: list[dict[str, Any]] = [{"rates": record}]
    if days is not None:
        stored = [{"topic": one.topic, **days_record(days, one.topic)} for one in flows.topics]
        records.append({"stored": stored})
    emit(records, _shown_flows(flows, days), as_json=as_json)


def shown_days(days: DayReadings, topic: str) -> str:
    """Return what a topic stored today and yesterday, as a sentence."""
    today, yesterday = _of_days(days, topic)
    total = days.topics.get(topic)
    why = f", because {total}" if isinstance(total, str) else ""
    return f"messages stored today: {today}, yesterday: {yesterday}{why}"


def _of_days(days: DayReadings | None, topic: str) -> tuple[str, ...]:
    """Return the cells of today and yesterday; none without *days*."""
    if days is None:
        return ()
    total = days.topics.get(topic, "")
    if isinstance(total, str):
        return "unknown", "unknown"
    return (
        f"{'at least ' if total.today_is_least else ''}{total.today:,}",
        f"{'at least ' if total.yesterday_is_least else ''}{total.yesterday:,}",
    )


def _shown_flows(flows: Flows, days: DayReadings | None) -> Iterator[str | TextTable]:
    shown = partial(_shown, is_measured=flows.seconds is not None)
    for columns, rows in (
        (
            ("topic", "stored/s", *(() if days is None else ("today", "yesterday"))),
            [
                (one.topic, shown(one.stored_per_s), *_of_days(days, one.topic))
                for one in flows.topics
            ],
        ),
        (
            ("group", "topic", "finished/s", "lag"),
            [(one.group, one.topic, shown(one.finished_per_s), _lag(one)) for one in flows.groups],
        ),
    ):
        if rows:
            yield from ("", TextTable(columns, rows, [*{*columns} - {"group", "topic"}]))
    if flows.topics or flows.groups:
        yield (
            "rates: not measured; rocketray status --over 2 does so"
            if flows.seconds is None
            else f"rates over {flows.seconds:.1f} s; members report what they finished each second"
        )
    unknown = {one.topic: one.unknown for one in flows.topics}
    unknown |= {f"{one.group} on {one.topic}": one.unknown for one in flows.groups}
    for name, why in unknown.items():
        if why is not None:
            yield f"{name}: unknown, because {why}"


def _rate(
    before: int | Unknown | None, after: int | Unknown, seconds: float | None
) -> tuple[float | None, Unknown | None]:
    """Return a rate, or None and why it is unknown; None alone if it is not measured."""
    for each in (before, after):
        if isinstance(each, str):
            return None, each
    if seconds is None:
        return None, None
    assert isinstance(after, int)
    if not isinstance(before, int):
        return None, "it is new since the first sample"
    if after < before:
        return None, "its offsets were moved back between the samples"
    if seconds <= 0:
        return None, "no time has passed between the samples"
    return (after - before) / seconds, None


def _shown(rate: float | None, *, is_measured: bool) -> str:
    if rate is None:
        return "unknown" if is_measured else "–"
    return f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"


def _lag(flow: GroupFlow) -> str:
    if flow.lag is None:
        return "unknown"
    kind = (flow.exactness or "exact").replace("_", " ")
    return str(flow.lag) if kind == "exact" else f"{flow.lag} ({kind})"
