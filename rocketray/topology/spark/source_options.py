"""The options of the Spark source, checked before anything is read.

Spark passes them as text, with names in lower case. An unknown name is an error: an option that is
silently dropped is a filter that silently does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rocketray.cluster import Cluster, chosen_node
from rocketray.errors import ConfigError
from rocketray.filters.sql92 import Dialect
from rocketray.filters.subscription import Subscription
from rocketray.meant import meant
from rocketray.names import check_topic
from rocketray.topology.values.group import make_subscription

from .offset_rules import EARLIEST, LATEST, OffsetRule, parse_rule

__all__ = ["OPTION_NAMES", "SourceOptions", "may_be_writing", "parse_options"]

OPTION_NAMES = (
    "topic",
    "tags",
    "sql",
    "dialect",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "maxRowsPerTrigger",
    "data",
    "cluster",
    "rayAddress",
    "longPollMs",
    "arrowBatchRows",
    "failOnDataLoss",
    "allowFilterChange",
)
_CANONICAL = {name.lower(): name for name in OPTION_NAMES}
_TOPICS_MAX = 1000
_ARROW_BATCH_ROWS = 20_000  # measured: 10 to 50 thousand rows fit the processor's caches
_ARROW_BATCH_ROWS_MAX = 1_000_000
_LONG_POLL_MS = 500  # an idle query asks twice a second; a stop waits for it that long at most
_LONG_POLL_MS_MAX = 60_000
MAY_BE_WRITING = frozenset({"checkpointlocation", "queryname", "path", "paths"})
"""Options, in lower case, that Spark passes for writing: perhaps not meant for reading."""

_SIMILAR = 0.75  # one letter too many, too few or wrong in a short name

_NO_SERVER = (
    "there is no server's address: data names the node's data directory, or cluster a cluster on "
    "the Ray of this machine or of rayAddress"
)
_NO_GROUP = "a query belongs to no group; its checkpoint keeps its offsets"
_BY_TIME = (
    "a query starts and ends by offsets, not by time; name offsets, or filter further with "
    ".where(\"storeTimestamp >= '…'\")"
)
_PATTERN = "topic patterns are not supported; name the topics in topic, separated by commas"
_NOT_DIVIDED = "a queue is one task and is not divided; a topic with more queues gives more tasks"
_NO_WAITING = "a micro-batch has no minimum size; give the trigger a longer interval"
_TAGS, _SQL = "its name here is tags", "its name here is sql"

_REASONS: Mapping[str, str] = {
    # Spark's own
    "checkpointLocation": "it belongs to writeStream: .writeStream.option('checkpointLocation', …)",
    "queryName": "it belongs to writeStream: .writeStream.queryName(…)",
    "path": 'load() takes no path; name the topic: .option("topic", "Trade")',
    "paths": 'load() takes no path; name the topic: .option("topic", "Trade")',
    "mode": "modes are for parsing files; every message is a row here",
    "header": "it is for files; the columns are always the same here",
    "inferSchema": "it is for files; the columns are always the same here",
    # Kafka's
    "subscribe": 'its name here is topic: .option("topic", "Trade,Orders")',
    "subscribePattern": _PATTERN,
    "topicPattern": _PATTERN,
    "assign": "a query reads all queues; limit them with startingOffsets and endingOffsets",
    "startingTimestamp": _BY_TIME,
    "startingOffsetsByTimestamp": _BY_TIME,
    "startingOffsetsByTimestampStrategy": _BY_TIME,
    "endingTimestamp": _BY_TIME,
    "endingOffsetsByTimestamp": _BY_TIME,
    "minPartitions": _NOT_DIVIDED,
    "maxRecordsPerPartition": _NOT_DIVIDED,
    "minOffsetsPerTrigger": _NO_WAITING,
    "maxTriggerDelay": _NO_WAITING,
    "maxBytesPerTrigger": "a micro-batch is limited by messages: maxOffsetsPerTrigger",
    "includeHeaders": "the properties are a column here: properties",
    "kafka.bootstrap.servers": _NO_SERVER,
    "kafka.group.id": _NO_GROUP,
    "groupIdPrefix": _NO_GROUP,
    "kafkaConsumer.pollTimeoutMs": _NO_SERVER,
    "fetchOffset.numRetries": _NO_SERVER,
    "fetchOffset.retryIntervalMs": _NO_SERVER,
    # RocketMQ's
    "nameServer": _NO_SERVER,
    "nameServerAddress": _NO_SERVER,
    "endpoint": _NO_SERVER,
    "group": _NO_GROUP,
    "consumerGroup": _NO_GROUP,
    "subExpression": _TAGS,
    "filter.tag": _TAGS,
    "tag": _TAGS,
    "filter.sql": _SQL,
    "where": "predicates are not supported on Spark; filter further with .where(…)",
}
_NAMES = {name.lower(): name for name in _REASONS}  # Spark passes names in lower case


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a query. ``max_offsets_per_trigger`` counts messages.

    ``node`` is the cluster, or the absolute path of a data directory. ``starting`` and ``ending``
    are None if not given: the reader has its default.
    """

    topics: tuple[str, ...]
    subscription: Subscription
    node: Path | Cluster
    starting: OffsetRule | None
    ending: OffsetRule | None
    max_offsets_per_trigger: int | None
    long_poll_ms: int
    arrow_batch_rows: int
    fail_on_data_loss: bool
    allow_filter_change: bool


def parse_options(options: Mapping[str, str], environ: Mapping[str, str]) -> SourceOptions:
    """Return the options as values; names are case-insensitive.

    Raises:
        ConfigError: an unknown name, a missing topic, or an unusable value.
        FilterSyntaxError: ``tags`` or ``sql`` does not parse.
    """
    given = {_canonical_name(name): value for name, value in options.items()}
    return SourceOptions(
        topics=_topics(given.get("topic")),
        subscription=_subscription(given.get("tags"), given.get("sql"), given.get("dialect")),
        node=_node(given, environ),
        starting=_rule(given, "startingOffsets", others=EARLIEST),
        ending=_rule(given, "endingOffsets", others=LATEST),
        max_offsets_per_trigger=_max_offsets(given),
        long_poll_ms=_number(given, "longPollMs", _LONG_POLL_MS, 0, _LONG_POLL_MS_MAX),
        arrow_batch_rows=_number(
            given, "arrowBatchRows", _ARROW_BATCH_ROWS, 1, _ARROW_BATCH_ROWS_MAX
        ),
        fail_on_data_loss=_claim(given, "failOnDataLoss", default=True),
        allow_filter_change=_claim(given, "allowFilterChange", default=False),
    )


def may_be_writing(options: Mapping[str, str]) -> bool:
    """Return whether wrong options may be a writer's: then to explain them would not help."""
    names = {name.lower() for name in options}
    return "topic" not in names or not MAY_BE_WRITING.isdisjoint(names)


def _canonical_name(name: str) -> str:
    canonical = _CANONICAL.get(name.lower())
    if canonical is not None:
        return canonical
    raise ConfigError(explain_stranger(name, OPTION_NAMES))


def _topics(text: str | None) -> tuple[str, ...]:
    if text is None:
        raise ConfigError(
            'the topic is missing; add .option("topic", "Trade"), or a list with commas'
        )
    names = tuple(check_topic(name.strip()) for name in text.split(","))
    if len(set(names)) != len(names):
        raise ConfigError(f"topic={text!r} names a topic twice")
    if len(names) > _TOPICS_MAX:
        raise ConfigError(f"topic names {len(names)} topics; one query reads at most {_TOPICS_MAX}")
    return names


def _subscription(tags: str | None, sql: str | None, dialect: str | None) -> Subscription:
    if tags is not None and sql is not None:
        raise ConfigError("both tags and sql are given; use TAGS in the sql, or drop one of them")
    named = cast("Dialect | None", dialect)  # checked by the subscription
    return make_subscription(tags or None, sql, None, dialect=named)


def _node(given: Mapping[str, str], environ: Mapping[str, str]) -> Path | Cluster:
    places = given.get("data"), given.get("cluster"), given.get("rayAddress")
    node = chosen_node(*places, environ)
    return node.absolute() if isinstance(node, Path) else node  # the same in every process


def _rule(given: Mapping[str, str], option: str, *, others: int) -> OffsetRule | None:
    text = given.get(option)
    return None if text is None else parse_rule(text, option, others=others)


def _max_offsets(given: Mapping[str, str]) -> int | None:
    names = [name for name in ("maxOffsetsPerTrigger", "maxRowsPerTrigger") if name in given]
    if len(names) > 1:
        raise ConfigError("maxRowsPerTrigger is another name of maxOffsetsPerTrigger; give one")
    return _number(given, names[0], 0, 1, 2**62) if names else None


def _number(given: Mapping[str, str], option: str, default: int, least: int, most: int) -> int:
    text = given.get(option)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ConfigError(f"{option}={text!r}: write a whole number from {least} to {most}")
    return value


def _claim(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = given.get(option)
    if text is None:
        return default
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ConfigError(f"{option}={text!r}: write true or false")
    return value


def explain_stranger(name: str, known: Sequence[str]) -> str:
    """Return the explanation of an option that is not among the *known* ones."""
    lowered = name.lower()
    written = _NAMES.get(lowered, name)
    reason = _REASONS.get(written, _NO_SERVER if lowered.startswith("kafka.") else None)
    if reason is not None:
        return f"option {written!r} is not one of this source: {reason}"
    near = meant(name, known, cutoff=_SIMILAR)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown option {name!r}; {hint}The options are {', '.join(known)}"
