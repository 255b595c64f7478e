"""Options that are not the source's own, and the reason for each: Spark's, Kafka's, RocketMQ's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketray.base.meant import meant

_SIMILAR = 0.75  # one letter too many, too few or wrong in a short name

_NO_SERVER = (
    "there is no server's address: data names the node's data directory, or cluster a cluster on "
    "the Ray of this machine or of rayAddress"
)
_NO_CONSUMER = (
    "it configures a client of Kafka, which is not used here; data names the node's data directory, "
    "or cluster a cluster"
)
_NO_GROUP = "a query belongs to no group; its checkpoint keeps its offsets"
_TAGS, _SQL = "its name here is tags", "its name here is sql"

_REASONS: Mapping[str, str] = {
    # Spark's own
    "checkpointLocation": "it belongs to writeStream: .writeStream.option('checkpointLocation', …)",
    "queryName": "it belongs to writeStream: .writeStream.queryName(…)",
    "paths": 'one directory is read: .load("/srv/store"), with .option("topic", "Trade")',
    "mode": "modes are for parsing files; every message is a row here",
    "header": "it is for files; the columns are always the same here",
    "inferSchema": "it is for files; the columns are always the same here",
    # Kafka's
    "maxBytesPerTrigger": "a micro-batch is limited by messages: maxOffsetsPerTrigger",
    "kafka.bootstrap.servers": _NO_SERVER,
    "kafka.group.id": _NO_GROUP,
    "groupIdPrefix": _NO_GROUP,
    "kafkaConsumer.pollTimeoutMs": _NO_CONSUMER,
    "fetchOffset.numRetries": _NO_CONSUMER,
    "fetchOffset.retryIntervalMs": _NO_CONSUMER,
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
}
_OF_WRITER: Mapping[str, str] = {
    "path": "rows go into a topic and not into a directory: .option('topic', 'Trade')",
    "kafka.bootstrap.servers": _NO_SERVER,
    "nameServer": _NO_SERVER,
    "nameServerAddress": _NO_SERVER,
    "endpoint": _NO_SERVER,
    "kafka.acks": "what Spark writes is on disk when its batch ends",
    "kafka.transactional.id": "its name here is txnAppId",
    "includeHeaders": "a column headers is written if there is one, with columns=kafka",
}
_NAMES = {
    name.lower(): name for name in (*_REASONS, *_OF_WRITER)
}  # Spark passes names in lower case


def explain_stranger(name: str, known: Sequence[str], of: str = "source") -> str:
    """Return the explanation of an option that is not among the *known* ones of a source or writer.

    Of the reasons above only those about the node hold for a writer, too.
    """
    lowered = name.lower()
    written = _NAMES.get(lowered, name)
    reasons = _REASONS if of == "source" else _OF_WRITER
    reason = reasons.get(written, _NO_CONSUMER if lowered.startswith("kafka.") else None)
    if reason is not None:
        return f"option {written!r} is not one of this {of}: {reason}"
    near = meant(name, known, cutoff=_SIMILAR)
    hint = f"did you mean {near[0]}? The" if near else "the"
    return f"unknown option {name!r}; {hint} options are {', '.join(known)}"
