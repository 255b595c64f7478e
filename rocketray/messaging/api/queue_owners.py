"""Telling the shard of a queue that it has a new owner, on whichever disk the queue is."""

from __future__ import annotations

from rocketray.broker.topics.catalog import TopicConfig

from .tails import TailNode


def fence_queue(node: TailNode, topic: TopicConfig, queue_id: int, owner_epoch: int) -> int:
    """Have the shard store nothing of older owners; return the newest epoch: ``ShardApi.fence``.

    Raises:
        ShardUnavailableError: the shard does not answer; the call may be repeated.
    """
    place = node.at(topic.disk_of(queue_id))
    return place.shard_calls(topic, queue_id).fence(owner_epoch)
