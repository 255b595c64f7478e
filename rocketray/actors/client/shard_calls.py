"""The calls to a shard: the actor of its process serves it (cluster/shard_process_actor.py)."""

from __future__ import annotations

from typing import Any

from rocketray.actors.runtime.clock import steady_clock_ms
from rocketray.actors.shards.owned_shard import Question
from rocketray.actors.topics.catalog import TopicConfig

from .actor_names import find_actor, process_actor

__all__ = ["ShardCalls", "shards_of"]


class ShardCalls:
    """The calls of one shard; each returns Ray's reference of the result."""

    def __init__(self, topic: TopicConfig, queue_id: int) -> None:
        self.name = process_actor(topic.process_of(queue_id))
        self._place = topic.name, queue_id

    def ask(self, question: Question, *arguments: Any) -> Any:
        """Call the method of ``OwnedShard`` (shards/owned_shard.py) named *question*.

        Raises:
            ShardUnavailableError: there is no such actor.
        """
        return find_actor(self.name).ask.remote(*self._place, question, *arguments)

    def append(self, payload: bytes, durability: int, *, attempt: int, wait_s: float) -> Any:
        """Store a packed batch for a caller that waits *wait_s*; raises as :meth:`ask`."""
        append = find_actor(self.name).append
        not_after_ms = steady_clock_ms() + int(wait_s * 1000)
        return append.remote(
            *self._place, payload, durability, attempt=attempt, not_after_ms=not_after_ms
        )


def shards_of(topic: TopicConfig) -> list[ShardCalls]:
    """Return the calls of all shards of a topic, by queue."""
    return [ShardCalls(topic, queue_id) for queue_id in range(topic.queues)]
