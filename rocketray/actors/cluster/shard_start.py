"""Starting, stopping and removing the actors of shards."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rocketray.actors.client.actor_names import HOST_NAME, actor_or_none, find_actor, shard_name
from rocketray.actors.client.shard_calls import shards_of
from rocketray.actors.files.home import Home
from rocketray.actors.ray_process.ray_runtime import NAMESPACE, RayError, RayTaskError, pinned, ray
from rocketray.actors.shards.owned_shard import why_closed
from rocketray.actors.topics.catalog import TopicConfig
from rocketray.actors.topics.topic_start import Started
from rocketray.config import StoreConfig
from rocketray.errors import ActorError, ShardUnavailableError, StreamError

from .shard_actor import ShardActor
from .system_actor import ShardHostActor

__all__ = ["remove_shards", "start_actor", "start_shards", "stop_shards"]

_LOG = logging.getLogger(__name__)
_SHARD_THREADS = 8
_HOST_THREADS = 16


def start_shards(
    home: Home,
    topics: list[TopicConfig],
    sizes: Mapping[str, Any],
    queues: range | None = None,
    wait_s: float | None = None,
) -> Started:
    """Start the shards of *topics*, or those of *queues*; running shards are left alone.

    Returns when they answer, or after *wait_s*. A shard that stays closed does not keep the others
    from running. The host has all queues of a hosted topic, or none.
    """
    hosted = [topic for topic in topics if topic.hosted]
    asked: dict[str, Any] = {}
    began = []
    if hosted:
        host = start_actor(ShardHostActor, HOST_NAME, _HOST_THREADS, home, dict(sizes))
        asked |= {topic.name: host.open.remote(topic) for topic in hosted}
    for topic in topics:
        if not topic.hosted:
            for queue_id in range(topic.queues) if queues is None else queues:
                place, name = f"{topic.name}/{queue_id}", shard_name(topic.name, queue_id)
                actor = actor_or_none(name)
                if actor is None:
                    began.append(place)
                    config = StoreConfig(store_host=topic.store_hosts[queue_id], **sizes)
                    actor = start_actor(
                        ShardActor, name, _SHARD_THREADS, home, topic.name, queue_id, config
                    )
                asked[place] = actor.ask.remote("statistics")
    answers = [*asked.values()]
    late = set(ray.wait(answers, num_returns=len(answers), timeout=wait_s)[1]) if answers else set()
    reasons = {name: _why_closed(name, ref) for name, ref in asked.items() if ref not in late}
    closed = {name: reason for name, reason in reasons.items() if reason is not None}
    waiting = tuple(name for name, answer in asked.items() if answer in late)
    return Started(closed, waiting, tuple(began))


def _why_closed(name: str, answer: Any) -> StreamError | None:
    """Return why a shard that has answered, or has ended, stays closed; None if it runs."""
    try:
        ray.get(answer)
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else None
        if isinstance(cause, StreamError):
            return cause
        _LOG.warning("shard %s stays closed", name, exc_info=error)
        advice = "see the node's logs, and start the node again"
        if cause is None:  # Ray's text about an ended actor has many lines
            cause = ActorError(next(iter(str(error).splitlines()), type(error).__name__))
        return ActorError(why_closed(name, cause, advice))
    return None


def stop_shards(topics: list[TopicConfig]) -> None:
    """Stop the actors of all *topics*: all their data is on disk on return.

    A queue that was never started, because the creation of its topic was interrupted, has no data.
    """
    names = {calls.name for topic in topics for calls in shards_of(topic)}
    actors = filter(None, map(actor_or_none, sorted(names)))
    ray.get([actor.stop.remote() for actor in actors])


def remove_shards(topic: TopicConfig) -> None:
    """Stop the shards of a topic that is deleted from the catalog, for good.

    A shard that died a moment ago does not start again without its topic, so cannot be stopped.
    """
    if topic.hosted:
        with suppress(ShardUnavailableError):  # no host, no shard
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


def start_actor(actor: type, name: str, threads: int, home: Home, *arguments: Any) -> Any:
    """Return the actor of that name at *home*, started unless it runs; Ray restarts it."""
    options = {
        **pinned(home),
        "name": name,
        "namespace": NAMESPACE,
        "get_if_exists": True,
        "lifetime": "detached",
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": -1,
        "max_concurrency": threads,
    }
    return ray.remote(actor).options(**options).remote(home, *arguments)
