"""What a node has as JSON records: topics, disks, and groups with their progress."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rocketray.base.json_fields import json_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rocketray.broker.shards.shard_api import ShardStatistics
    from rocketray.broker.topics.catalog import TopicConfig
    from rocketray.groups.filter_plans import PlanProgress
    from rocketray.groups.group_descriptions import GroupDescription
    from rocketray.messaging.api.node_client import NodeClient
    from rocketray.services.admin.seeking import OffsetMove
    from rocketray.services.health.connected_producers import ConnectedProducer
    from rocketray.services.health.day_totals import DayReadings

UNKNOWN_RELEASE = "unknown"
_KEYS = (
    "queueId",
    "brokerOffset",
    "consumerOffset",
    "diff",
    "inflight",
    "lag",
    "lastTime",
    "clientId",
    "exactness",
    "held",
)


def topic_record(config: TopicConfig) -> dict[str, Any]:
    return {
        "topic": config.name,
        "topicId": config.topic_id,
        "queues": config.queues,
        "perm": config.perm,
        "retentionMs": config.retention.max_age_ms,
        "retentionBytes": config.retention.max_bytes,
        "bitmaps": config.bitmaps,
        "ack": config.default_ack,
        "ackOfTopic": config.ack,
    }


def described_topic(config: TopicConfig, statistics: Sequence[ShardStatistics]) -> dict[str, Any]:
    """Return the settings of a topic, and its queues with the offsets of their *statistics*."""
    queues = [
        {
            "queueId": shard.queue_id,
            "minOffset": shard.min_queue_offset,
            "maxOffset": shard.max_queue_offset,
            "storeHost": "{}:{}".format(*config.store_hosts[shard.queue_id]),
            "process": config.process_of(shard.queue_id),
        }
        for shard in statistics
    ]
    kept = any(shard.keeps_bitmaps for shard in statistics)
    return {**topic_record(config), "bitmapsKept": kept, "queueList": queues}


def days_record(found: DayReadings, topic: str) -> dict[str, Any]:
    """Return what a topic stored today and yesterday, or why that is ``unknown``."""
    total = found.topics.get(topic, "it was not asked for")
    if isinstance(total, str):
        return {"unknown": total}
    begins = {"yesterdayMs": found.yesterday_ms, "todayMs": found.today_ms}
    return {"unknown": None, **begins, **json_fields(total)}


def disk_records(node: NodeClient, topics: Mapping[str, TopicConfig]) -> list[dict[str, Any]]:
    """Return the disks, the first one of the cluster first; ``name`` is the one in the catalog."""
    reports, draining = node.disks.reports(), node.disks.draining()
    place = node.disks.coordinator_place()
    disks = []
    for name, home in sorted(node.disks.homes().items()):
        report = reports.get(name)
        disks.append(
            {
                "name": name,
                "disk": home.uuid,
                "machine": home.machine,
                "directory": home.data,
                "zone": "" if report is None else report.zone,
                "state": "answers" if report is not None else "does not answer",
                "isDrained": name in draining,
                "isCoordinator": home.uuid == place.uuid,
                "freeBytes": None if report is None else report.free_bytes,
                "totalBytes": None if report is None else report.total_bytes,
                "queues": sum(len(topic.by_disk().get(name, ())) for topic in topics.values()),
            }
        )
    return disks


def group_record(group: GroupDescription) -> dict[str, Any]:
    """Return a group on one topic: its subscription, offsets, members and counters."""
    return {
        "group": group.group,
        "topic": group.topic,
        "subscription": group.subscription.to_json(),
        "changingTo": None if group.plan is None else group.plan.new.to_json(),
        "offsets": {str(queue): offset for queue, offset in sorted(group.offsets.items())},
        "members": group.members,
        "counters": json_fields(group.counters),
    }


def members_record(group: GroupDescription) -> dict[str, Any]:
    """Return the members of a group on one topic; what is not known of one is None.

    ``queues`` are those that it owns, ``reads`` those of its last heartbeat. ``releases`` counts
    the members by release.
    """
    members = [
        {
            "clientId": name,
            "machine": client.machine or None,
            "pid": client.pid or None,
            "release": client.release or None,
            "joinedMs": client.joined_ms,
            "silentMs": client.silent_ms,
            "queues": group.members[name],
            "reads": client.held,
            "subscription": client.subscription and client.subscription.to_json(),
        }
        for name, client in sorted(group.clients.items())
    ]
    releases = Counter(str(each["release"] or UNKNOWN_RELEASE) for each in members)
    return {
        "group": group.group,
        "topic": group.topic,
        "isBroadcast": group.is_broadcast,
        "subscription": group.subscription.to_json(),
        "releases": dict(sorted(releases.items())),
        "members": members,
    }


def producer_record(producer: ConnectedProducer) -> dict[str, Any]:
    """Return a process that sends; what is not known of it is None."""
    return {
        "machine": producer.machine,
        "pid": producer.pid,
        "program": producer.program or None,
        "release": producer.release or None,
        "sinceMs": producer.since_ms or None,
        "storedMs": producer.stored_ms or None,
        "batches": producer.batches,
        "queues": producer.queues,
    }


def progress_rows(node: NodeClient, group: GroupDescription) -> Iterator[dict[str, Any]]:
    """Yield a row for each queue of a group; ``held`` is a :class:`FailingMessage` or None."""
    from rocketray.messaging.api.node_client import lag_of  # noqa: PLC0415 - not needed for --help

    lags = lag_of(node, group)
    for queue, shard in enumerate(node.shard_statistics(group.topic)):
        offset = group.offsets.get(queue, -1)
        done = max(offset, shard.min_queue_offset)
        readers = [name for name, queues in group.members.items() if queue in queues]
        row = dict.fromkeys(_KEYS)
        row |= {
            "group": group.group,
            "topic": group.topic,
            "queueId": queue,
            "brokerOffset": shard.max_queue_offset,
            "clientId": ", ".join(readers) or None,
        }
        if not group.is_broadcast:
            before = None
            # The last message that the group has finished: RocketMQ's ``lastTime`` is when it was
            # stored.
            if offset > shard.min_queue_offset:
                before = node.messages.at(group.topic, queue, offset - 1)
            pulled = group.pulled.get(queue)
            row |= {
                "consumerOffset": offset,
                "diff": lags[queue].diff,
                "inflight": None if pulled is None else max(0, pulled - done),
                "lag": lags[queue].count,
                "exactness": lags[queue].exactness.value,
                "lastTime": None if before is None else before.store_timestamp_ms,
                "held": group.failing.get(queue),
            }
        yield row


def progress_record(row: Mapping[str, Any], filter_errors: int) -> dict[str, Any]:
    """Return a row of :func:`progress_rows` as JSON, with the errors of the group's filter."""
    held = row["held"] and json_fields(row["held"])
    return {**row, "held": held, "filterErrors": filter_errors}


def move_record(move: OffsetMove, *, moved: bool) -> dict[str, Any]:
    """Return a move of a group in one queue; *moved* is false for a dry run."""
    return {
        "group": move.group,
        "topic": move.topic,
        "queueId": move.queue_id,
        "from": move.from_offset,
        "to": move.to_offset,
        "skipped": move.skipped,
        "repeated": move.repeated,
        "moved": moved,
    }


def plan_record(found: PlanProgress | None) -> dict[str, Any]:
    """Return the progress of a change of a group's filter; None is a complete one."""
    if found is None:
        return {"complete": True}
    return {
        "complete": False,
        "switches": {str(queue): offset for queue, offset in found.plan.switches.items()},
        "withoutSwitch": found.without_switch,
        "beforeSwitch": found.before_switch,
        "outdated": found.outdated,
    }
