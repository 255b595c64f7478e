"""Where the actor of a shard is, and how it is asked: one of its own, or the host's.

Every topic that programs make has an actor for each of its shards. Hosted topics have one actor
for all of them (shard_host.py), which is started with the first.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketray.config import StoreConfig
from rocketray.errors import ShardUnavailableError

from .catalog import TopicConfig
from .owned_shard import Question
from .ray_runtime import NAMESPACE, RayError, ray
from .shard import ShardActor
from .shard_host_actor import ShardHostActor

__all__ = [
    "HOST_NAME",
    "RETRY_AFTER_MS",
    "ShardCalls",
    "find_actor",
    "remove_shards",
    "shard_name",
    "shards_of",
    "start_actor",
    "start_shards",
    "stop_shards",
]

_LOG = logging.getLogger(__name__)
HOST_NAME = "shard-host"
RETRY_AFTER_MS = 1000
_SHARD_THREADS = 8
_HOST_THREADS = 16


def shard_name(topic: str, queue_id: int) -> str:
    """The name of a shard's actor, where it has one of its own."""
    return f"shard:{topic}:{queue_id}"


class ShardCalls:
    """The calls of one shard; each returns Ray's reference of the answer."""

    def __init__(self, topic: TopicConfig, queue_id: int) -> None:
        self.name = HOST_NAME if topic.hosted else shard_name(topic.name, queue_id)
        self._place = (topic.name, queue_id) if topic.hosted else ()

    def ask(self, question: Question, *arguments: Any) -> Any:
        """What the method of :class:`~.owned_shard.OwnedShard` of that name says.

        Raises:
            ShardUnavailableError: there is no such actor.
        """
        return find_actor(self.name).ask.remote(*self._place, question, *arguments)

    def append(self, payload: bytes, durability: int, *, attempt: int) -> Any:
        """Store a packed batch; raises as :meth:`ask`."""
        append = find_actor(self.name).append
        return append.remote(*self._place, payload, durability, attempt=attempt)


def find_actor(name: str) -> Any:
    """The actor of that name; raises :class:`ShardUnavailableError` when it cannot be found."""
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        raise ShardUnavailableError(
            name, RETRY_AFTER_MS, "there is no such actor; is the node starting or stopping?"
        ) from None
    except RayError as error:  # Ray itself is away
        raise ShardUnavailableError(name, RETRY_AFTER_MS, str(error)) from error


def shards_of(topic: TopicConfig) -> list[ShardCalls]:
    """The calls of all shards of a topic, by queue."""
    return [ShardCalls(topic, queue_id) for queue_id in range(topic.queues)]


def start_shards(data: Path, topics: list[TopicConfig], sizes: Mapping[str, Any]) -> None:
    """Have all shards of *topics* running; returns when they answer."""
    hosted = [topic for topic in topics if topic.hosted]
    answers = []
    if hosted:
        host = start_actor(ShardHostActor, HOST_NAME, _HOST_THREADS, str(data), dict(sizes))
        answers += [host.open.remote(topic) for topic in hosted]
    for topic in topics:
        if not topic.hosted:
            for queue_id, store_host in enumerate(topic.store_hosts):
                config = StoreConfig(store_host=store_host, **sizes)
                name = shard_name(topic.name, queue_id)
                arguments = str(data), topic.name, queue_id, config
                answers.append(
                    start_actor(ShardActor, name, _SHARD_THREADS, *arguments).ask.remote(
                        "statistics"
                    )
                )
    ray.get(answers)


def stop_shards(topics: list[TopicConfig]) -> None:
    """Stop the actors of all *topics*: all they hold is on disk when this returns."""
    names = {calls.name for topic in topics for calls in shards_of(topic)}
    ray.get([find_actor(name).stop.remote() for name in sorted(names)])


def remove_shards(topic: TopicConfig) -> None:
    """Stop the shards of a topic for good, which the catalog has no more.

    One that died a moment ago does not start again without it, so it cannot be stopped.
    """
    if topic.hosted:
        ray.get(find_actor(HOST_NAME).remove.remote(topic.name))
        return
    for calls in shards_of(topic):
        try:
            actor = find_actor(calls.name)
        except ShardUnavailableError:
            continue
        try:
            ray.get(actor.stop.remote())
        except RayError as error:
            _LOG.warning("%s is not stopped but ended: %s", calls.name, error)
        ray.kill(actor)


def start_actor(actor: type, name: str, threads: int, *arguments: Any) -> Any:
    """The actor of that name, started unless it runs; Ray restarts it when it dies."""
    options = {
        "name": name,
        "namespace": NAMESPACE,
        "get_if_exists": True,
        "lifetime": "detached",
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": -1,
        "max_concurrency": threads,
    }
    return ray.remote(actor).options(**options).remote(*arguments)
