"""Options that the source does not have, with reasons: those of Spark, Kafka's and RocketMQ's.

A user of another connector may bring its options along. For each known one the answer says what to
do here; for the others it only suggests the nearest of our own names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketray.meant import meant

__all__ = ["MAY_BE_WRITING", "explain_stranger"]

MAY_BE_WRITING = frozenset({"checkpointlocation", "queryname", "path", "paths"})
"""Options, in lower case, that Spark passes for writing: perhaps not meant for reading."""

_SIMILAR = 0.75  # one letter too many, too few or wrong in a short name

_NO_SERVER = "nothing is fetched from a server: data names the node's data directory"
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
