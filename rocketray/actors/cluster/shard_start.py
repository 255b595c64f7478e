"""Starting, stopping and removing the actors of shard processes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from rocketray.actors.calls.endpoint import process_actor
from rocketray.actors.client.actor_names import actor_or_none, find_actor
from rocketray.actors.files.home import Home
from rocketray.actors.ray_process.ray_runtime import NAMESPACE, RayError, RayTaskError, pinned, ray
from rocketray.actors.shards.owned_shard import why_closed
from rocketray.actors.shards.shard_process import Opened
from rocketray.actors.topics.catalog import SHARED_PROCESS, TopicConfig
from rocketray.actors.topics.topic_start import Started
from rocketray.errors import ActorError, ShardUnavailableError, StreamError

from .shard_process_actor import ShardProcessActor

__all__ = ["closed_shards", "remove_shards", "start_actor", "start_shards", "stop_shards"]

_LOG = logging.getLogger(__name__)
_PROCESS_THREADS = 16


def start_shards(
    home: Home,
    topics: list[TopicConfig],
    sizes: Mapping[str, Any],
    queues: range | None = None,
    wait_s: float | None = None,
) -> Started:
    """Start the shards of *topics*, or those of *queues*; running shards are left alone.

    Returns when their processes answer, or after *wait_s*. A shard that stays closed does not keep
    the others from running.
    """
    asked: dict[Any, list[str]] = {}
    began, waiting = [], []
    closed: dict[str, StreamError] = {}
    for topic in topics:
        for process, queue_ids in topic.by_process(queues).items():
            places = [f"{topic.name}/{queue_id}" for queue_id in queue_ids]
            name = process_actor(process)
            actor = actor_or_none(name)
            if actor is None:
                began += places
                arguments = process, dict(sizes)
                actor = start_actor(ShardProcessActor, name, _PROCESS_THREADS, home, *arguments)
            asked[actor.open.remote(topic, queue_ids)] = places
    answers = [*asked]
    late = set(ray.wait(answers, num_returns=len(answers), timeout=wait_s)[1]) if answers else set()
    for answer, places in asked.items():
        if answer in late:
            waiting += places
            continue
        new, why = _opened(answer, places)
        began += [place for place in new if place not in began]
        closed |= why
    return Started(closed, tuple(waiting), tuple(began))


def _opened(answer: Any, places: list[str]) -> tuple[list[str], dict[str, StreamError]]:
    """Return which of *places* a process has opened, and why some of them stay closed."""
    try:
        opened: Opened = ray.get(answer)
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else None
        if isinstance(cause, StreamError):
            return [], dict.fromkeys(places, cause)
        _LOG.warning("shards %s stay closed", ", ".join(places), exc_info=error)
        advice = "see the node's logs, and start the node again"
        if cause is None:  # Ray's text about an ended actor has many lines
            cause = ActorError(next(iter(str(error).splitlines()), type(error).__name__))
        return [], {place: ActorError(why_closed(place, cause, advice)) for place in places}
    of_queue = {int(place.rpartition("/")[2]): place for place in places}
    closed = {of_queue[queue_id]: reason for queue_id, reason in opened.closed.items()}
    return [of_queue[queue_id] for queue_id in opened.new], closed


def closed_shards(topics: Iterable[TopicConfig], wait_s: float) -> dict[str, str | None]:
    """Return why shards are closed, by ``topic/queue``; None for those that are open.

    Processes that do not answer within *wait_s* are left out: Ray starts them again.
    """
    places: dict[str, list[str]] = {}
    for topic in topics:
        for process, queue_ids in topic.by_process().items():
            of_process = places.setdefault(process_actor(process), [])
            of_process += [f"{topic.name}/{queue_id}" for queue_id in queue_ids]
    actors = {name: actor_or_none(name) for name in sorted(places)}
    asked = {actor.closed.remote(): name for name, actor in actors.items() if actor is not None}
    found: dict[str, str | None] = {}
    if asked:
        for answer in ray.wait([*asked], num_returns=len(asked), timeout=wait_s)[0]:
            with suppress(RayError):
                closed: dict[str, str] = ray.get(answer)
                found |= {place: closed.get(place) for place in places[asked[answer]]}
    return found


def stop_shards(topics: list[TopicConfig]) -> None:
    """Stop the processes of all *topics*: all their data is on disk on return.

    A queue that was never started, because the creation of its topic was interrupted, has no data.
    """
    names = {process_actor(process) for topic in topics for process in topic.by_process()}
    actors = filter(None, map(actor_or_none, sorted(names)))
    ray.get([actor.stop.remote() for actor in actors])


def remove_shards(topic: TopicConfig) -> None:
    """Stop the shards of a topic that is deleted from the catalog, for good.

    A process with this topic alone ends. One that died a moment ago starts again without its topic.
    """
    for process in topic.by_process():
        try:
            actor = find_actor(process_actor(process))
        except ShardUnavailableError:
            continue  # no process, no shard
        if process == SHARED_PROCESS:
            ray.get(actor.remove.remote(topic.name))
            continue
        try:
            ray.get(actor.stop.remote())
        except RayError as error:
            _LOG.warning("process %s did not stop, so it is killed: %s", process, error)
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
