"""Where the actor of a shard is, and how it is asked: one of its own, or the host's.

Every topic that programs make has an actor for each of its shards. Hosted topics have one actor
for all of them (shard_host.py), which is started with the first.
"""

from __future__ import annotations

from typing import Any

from rocketray.actors.runtime.clock import steady_clock_ms
from rocketray.actors.shards.owned_shard import Question
from rocketray.actors.topics.catalog import TopicConfig

from .actor_names import HOST_NAME, find_actor, shard_name

__all__ = ["ShardCalls", "shards_of"]


class ShardCalls:
    """The calls of one shard; each returns Ray's reference of the answer."""

    def __init__(self, topic: TopicConfig, queue_id: int) -> None:
        self.name = HOST_NAME if topic.hosted else shard_name(topic.name, queue_id)
        self._place = (topic.name, queue_id) if topic.hosted else ()

    def ask(self, question: Question, *arguments: Any) -> Any:
        """What the method of :class:`~rocketray.actors.shards.owned_shard.OwnedShard` of that name says.

        Raises:
            ShardUnavailableError: there is no such actor.
        """
        return find_actor(self.name).ask.remote(*self._place, question, *arguments)

    def append(self, payload: bytes, durability: int, *, attempt: int, wait_s: float) -> Any:
        """Store a packed batch for a caller that waits for so long; raises as :meth:`ask`."""
        append = find_actor(self.name).append
        not_after_ms = steady_clock_ms() + int(wait_s * 1000)
        return append.remote(
            *self._place, payload, durability, attempt=attempt, not_after_ms=not_after_ms
        )


def shards_of(topic: TopicConfig) -> list[ShardCalls]:
    """The calls of all shards of a topic, by queue."""
    return [ShardCalls(topic, queue_id) for queue_id in range(topic.queues)]
