"""The metrics of a node: RocketMQ 5's names where it has them, with its labels, and a few of ours.

A number that is not known has no sample. Counters count since the process that counts was started,
as Prometheus expects; the numbers of groups are those of the coordinator's.
Source of the names: RocketMQ 5, ``BrokerMetricsManager``, ``BrokerMetricsConstant``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from rocketray.actors.filtering.filtered_lag import Exactness, FilteredLag
from rocketray.actors.groups.group_descriptions import GroupDescription
from rocketray.filters.counters import FilterCounters
from rocketray.names import RETRY_PREFIX, is_system_topic

from .node_readings import NodeReadings

__all__ = ["families_of"]

_TOPIC = ("cluster", "node_type", "topic", "is_system")
_QUEUE = ("cluster", "node_type", "topic", "queue_id")
_GROUP = ("cluster", "node_type", "topic", "consumer_group", "is_retry")
_BROKER = "broker"


def families_of(readings: NodeReadings) -> list[Metric]:
    """Return the metrics of a node at one time."""
    found = [*_of_topics(readings), *_of_queues(readings), *_of_numbers(readings)]
    if readings.groups is not None:
        found += _of_groups(readings, readings.groups)
        found += _of_filters(readings, readings.groups)
        found += _of_offsets(readings, readings.groups)
    return found


def _of_topics(readings: NodeReadings) -> Iterator[Metric]:
    came = CounterMetricFamily(
        "rocketmq_messages_in", "Messages that were stored in a topic.", labels=_TOPIC
    )
    behind = GaugeMetricFamily(
        "rocketmq_storage_flush_behind_bytes",
        "Bytes of a topic's logs that are not on disk yet.",
        labels=_TOPIC,
    )
    for topic, shards in readings.shards.items():
        labels = [readings.cluster, _BROKER, topic, _word(is_system_topic(topic))]
        came.add_metric(labels, sum(shard.messages for shard in shards))
        unflushed = (one.max_physical_offset - one.flushed_physical_offset for one in shards)
        behind.add_metric(labels, sum(max(size, 0) for size in unflushed))
    yield from (came, behind)


def _of_queues(readings: NodeReadings) -> Iterator[Metric]:
    first = GaugeMetricFamily(
        "rocketray_queue_min_offset", "The first queue offset that still exists.", labels=_QUEUE
    )
    end = GaugeMetricFamily(
        "rocketray_queue_max_offset", "The queue offset after the last message.", labels=_QUEUE
    )
    for topic, shards in readings.shards.items():
        for shard in shards:
            labels = [readings.cluster, _BROKER, topic, str(shard.queue_id)]
            first.add_metric(labels, shard.min_queue_offset)
            end.add_metric(labels, shard.max_queue_offset)
    yield from (first, end)


def _of_numbers(readings: NodeReadings) -> Iterator[Metric]:
    labels = [readings.cluster, _BROKER]
    named = {
        "rocketmq_topic_number": ("Topics, the node's own included.", readings.topics),
    }
    if readings.groups is not None:
        names = {group.group for group in readings.groups}
        named["rocketmq_consumer_group_number"] = ("Consumer groups.", len(names))
    for name, (text, value) in named.items():
        family = GaugeMetricFamily(name, text, labels=("cluster", "node_type"))
        family.add_metric(labels, value)
        yield family
    unknown = GaugeMetricFamily(
        "rocketray_unknown",
        "1 for each part that did not answer; its samples are missing.",
        labels=("cluster", "node_type", "part"),
    )
    for part in readings.unknown:
        unknown.add_metric([*labels, part], 1)
    yield unknown


def _labels(readings: NodeReadings, group: GroupDescription) -> list[str]:
    is_retry = _word(group.topic.startswith(RETRY_PREFIX))
    return [readings.cluster, _BROKER, group.topic, group.group, is_retry]


def _of_groups(readings: NodeReadings, groups: Iterable[GroupDescription]) -> Iterator[Metric]:
    connections = GaugeMetricFamily(
        "rocketmq_consumer_connections", "Members of a group.", labels=_GROUP
    )
    lags = GaugeMetricFamily(
        "rocketmq_consumer_lag_messages",
        "Messages that match a group's filter and are not finished.",
        labels=_GROUP,
    )
    exact = GaugeMetricFamily(
        "rocketray_lag_exact",
        "1 if the lag is exact; 0 if it is a bound, or a predicate's, which is not run for it.",
        labels=_GROUP,
    )
    taken = GaugeMetricFamily(
        "rocketmq_consumer_inflight_messages",
        "Messages that members have taken, or passed, and not finished.",
        labels=_GROUP,
    )
    for group in groups:
        labels = _labels(readings, group)
        connections.add_metric(labels, len(group.members))
        lag = readings.lags.get((group.group, group.topic))
        if lag is not None:
            count, is_exact = _sum(lag)
            lags.add_metric(labels, count)
            exact.add_metric(labels, is_exact)
        if not group.is_broadcast:
            inflight = (end - group.offsets.get(at, end) for at, end in group.pulled.items())
            taken.add_metric(labels, sum(max(count, 0) for count in inflight))
    yield from (connections, lags, exact, taken)


def _sum(lag: Mapping[int, FilteredLag]) -> tuple[int, bool]:
    """Return the messages of all queues, and whether that is exact."""
    is_exact = all(one.exactness is Exactness.EXACT for one in lag.values())
    return sum(one.count for one in lag.values()), is_exact


def _evaluated(counters: FilterCounters) -> dict[str, int]:
    no_match = counters.sql_rejected + counters.class_rejected
    before = counters.tag_rejected + counters.bloom_rejected
    match = counters.scanned - before - no_match - counters.errors
    return {"match": match, "no_match": no_match, "error": counters.errors}


_COUNTERS: dict[str, tuple[str, Callable[[FilterCounters], int]]] = {
    "rocketmq_messages_out": (
        "Messages that members of a group were given.",
        lambda one: one.delivered,
    ),
    "rocketmq_send_to_dlq_messages": (
        "Messages of which the handler failed for the last time.",
        lambda one: one.dead_lettered,
    ),
    "rocketray_filter_scanned": (
        "Queue entries that a group's filter looked at.",
        lambda one: one.scanned,
    ),
    "rocketray_filter_code_hits": (
        "Of these, those that passed the tags code in the entry.",
        lambda one: one.scanned - one.tag_rejected,
    ),
    "rocketray_filter_bitmap_skips": (
        "Of these, those that the bitmap beside the entry rejected.",
        lambda one: one.bloom_rejected,
    ),
    "rocketray_filter_collisions": (
        "Matches of the tag's hash, whose text is another one.",
        lambda one: one.collisions,
    ),
    "rocketray_filter_missed": (
        "Messages that were removed before the group read them.",
        lambda one: one.missed,
    ),
    "rocketray_predicate_timeouts": (
        "Calls of a predicate that did not return in time.",
        lambda one: one.predicate_timeouts,
    ),
}


def _of_filters(readings: NodeReadings, groups: Sequence[GroupDescription]) -> Iterator[Metric]:
    for name, (text, number) in _COUNTERS.items():
        family = CounterMetricFamily(name, text, labels=_GROUP)
        for group in groups:
            family.add_metric(_labels(readings, group), number(group.counters))
        yield family
    evaluated = CounterMetricFamily(
        "rocketray_filter_evaluated",
        "Messages by the result of the SQL92 expression or predicate.",
        labels=(*_GROUP, "result"),
    )
    for group in groups:
        if group.subscription.expression_type != "TAG":
            for result, number_of in _evaluated(group.counters).items():
                evaluated.add_metric([*_labels(readings, group), result], number_of)
    yield evaluated


def _of_offsets(readings: NodeReadings, groups: Iterable[GroupDescription]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "rocketray_commit_offset",
        "The offset below which a group has finished a queue.",
        labels=(*_GROUP, "queue_id"),
    )
    for group in groups:
        for queue_id, offset in sorted(group.offsets.items()):
            family.add_metric([*_labels(readings, group), str(queue_id)], offset)
    yield family


def _word(is_so: bool) -> str:  # noqa: FBT001 - a label's value
    return "true" if is_so else "false"
