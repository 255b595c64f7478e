"""The metrics of a node: RocketMQ 5's names where it has them, with its labels, and a few of ours.

A number that is not known has no sample. Counters count since the process that counts was started,
as Prometheus expects; the numbers of groups are those of the coordinator's.
Source of the names: RocketMQ 5, ``BrokerMetricsManager``, ``BrokerMetricsConstant``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from rocketray.base.names import RETRY_PREFIX
from rocketray.base.system_topics import is_system_topic
from rocketray.broker.filtering.filtered_lag import Exactness, total_lag
from rocketray.broker.shards.shard_api import ShardStatistics
from rocketray.filters.counters import FilterCounters
from rocketray.groups.group_descriptions import GroupDescription
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.api.system_api import TransactionCounts
from rocketray.services.health.health import read_health
from rocketray.services.health.node_readings import NodeReadings
from rocketray.services.health.troubles import Trouble, TroubleKind, troubles_of

_TOPIC = ("cluster", "node_type", "topic", "is_system")
_QUEUE = ("cluster", "node_type", "topic", "queue_id")
_GROUP = ("cluster", "node_type", "topic", "consumer_group", "is_retry")
_BROKER = "broker"  # RocketMQ's value of ``node_type`` for what stores messages
_Family = CounterMetricFamily | GaugeMetricFamily


def metrics_of(node: NodeClient) -> list[Metric]:
    """Ask a node, and return its metrics; raises as :func:`read_health`."""
    health = read_health(node)
    return families_of(health.node, troubles_of(health))


def families_of(readings: NodeReadings, troubles: Iterable[Trouble] = ()) -> list[Metric]:
    found = [*_of_topics(readings), *_of_queues(readings), *_of_numbers(readings)]
    found.append(_of_troubles(readings, troubles))
    if readings.groups is not None:
        found += _of_groups(readings, readings.groups)
        found += _of_filters(readings, readings.groups)
        found += _of_offsets(readings, readings.groups)
    return found


_OF_TOPIC: dict[str, tuple[type[_Family], str, Callable[[Sequence[ShardStatistics]], float]]] = {
    "rocketmq_messages_in": (
        CounterMetricFamily,
        "Messages that were stored in a topic.",
        lambda shards: sum(one.messages for one in shards),
    ),
    "rocketmq_throughput_in": (
        CounterMetricFamily,
        "Bytes by which a topic's logs have grown since the topic was created.",
        lambda shards: sum(one.max_physical_offset for one in shards),
    ),
    "rocketray_refused_batches": (
        CounterMetricFamily,
        "Batches that the shards of a topic refused.",
        lambda shards: sum(one.refused_batches for one in shards),
    ),
    "rocketmq_storage_size": (
        GaugeMetricFamily,
        "Bytes of a topic's logs that were not removed.",
        lambda shards: sum(one.max_physical_offset - one.min_physical_offset for one in shards),
    ),
    "rocketmq_storage_flush_behind_bytes": (
        GaugeMetricFamily,
        "Bytes of a topic's logs that are not on disk yet.",
        lambda shards: sum(
            max(one.max_physical_offset - one.flushed_physical_offset, 0) for one in shards
        ),
    ),
    "rocketray_storage_flush_behind_seconds": (
        GaugeMetricFamily,
        "Age of the oldest message of a topic that is not on disk yet; 0 if there is none.",
        lambda shards: max((one.unflushed_ms for one in shards), default=0) / 1000,
    ),
}


def _of_topics(readings: NodeReadings) -> Iterator[Metric]:
    for name, (kind, text, number) in _OF_TOPIC.items():
        family = kind(name, text, labels=_TOPIC)
        for topic, shards in readings.shards.items():
            labels = [readings.cluster, _BROKER, topic, _word(is_system_topic(topic))]
            family.add_metric(labels, number(shards))
        yield family


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
    if readings.delayed is not None:
        text = "Delayed messages whose time has not come."
        named["rocketmq_timing_messages"] = (text, readings.delayed)
    if (transactions := readings.transactions) is not None:
        text = "Transactional messages that are neither committed nor rolled back."
        named["rocketmq_half_messages"] = (text, transactions.undecided)
        for name, (text, count) in _transactions(transactions.counts).items():
            counter = CounterMetricFamily(name, text, labels=("cluster", "node_type"))
            counter.add_metric(labels, count)
            yield counter
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


def _of_troubles(readings: NodeReadings, troubles: Iterable[Trouble]) -> Metric:
    """Return how many troubles of each kind there are: 0 as well, so that a rule has a value.

    Apps are not asked here, and growth takes two readings: these kinds have no value.
    """
    family = GaugeMetricFamily(
        "rocketray_troubles",
        "What is wrong, by kind, as the console's overview lists it, but for apps and growing lags.",
        labels=("cluster", "node_type", "kind"),
    )
    counts = Counter(trouble.kind for trouble in troubles)
    for kind in TroubleKind:
        if kind in (TroubleKind.APP, TroubleKind.GROWING):
            continue
        family.add_metric([readings.cluster, _BROKER, kind.value], counts[kind])
    return family


def _transactions(counts: TransactionCounts) -> dict[str, tuple[str, int]]:
    return {
        "rocketmq_commit_messages": ("Transactional messages committed.", counts.committed),
        "rocketmq_rollback_messages": ("Transactional messages rolled back.", counts.rolled_back),
        "rocketray_abandoned_transactions": (
            "Transactional messages rolled back because no producer decided them.",
            counts.abandoned,
        ),
    }


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
    ages = GaugeMetricFamily(
        "rocketmq_consumer_lag_latency",
        "Milliseconds since the first message that a group has not finished was stored.",
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
            total = total_lag(lag.values())
            lags.add_metric(labels, total.count)
            exact.add_metric(labels, total.exactness is Exactness.EXACT)
            if (age_ms := total.age_ms(readings.time_ms)) is not None:
                ages.add_metric(labels, age_ms)
        if not group.is_broadcast:  # its members keep their offsets themselves
            inflight = (end - group.offsets.get(at, end) for at, end in group.pulled.items())
            taken.add_metric(labels, sum(max(count, 0) for count in inflight))
    yield from (connections, lags, exact, ages, taken)


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
    "rocketray_sent_back": (
        "Messages of which the handler failed, and that are redelivered later.",
        lambda one: one.sent_back,
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
