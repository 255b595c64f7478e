"""Topics as JSON records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketray.broker.shards.shard_api import ShardStatistics
    from rocketray.broker.topics.catalog import TopicConfig


def topic_record(config: TopicConfig) -> dict[str, Any]:
    """Return the settings of a topic."""
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
