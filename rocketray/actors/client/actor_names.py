"""Finding a node's actors in Ray by their names."""

from __future__ import annotations

from typing import Any

from rocketray.errors import ShardUnavailableError
from rocketray.runtime.ray_process.ray_runtime import RayError, namespace_of, ray

RETRY_AFTER_MS = 1000  # Ray has an actor that was killed back in 0.5 to 1.5 s


def find_actor(cluster: str, name: str) -> Any:
    """Return the actor of that name; raise :class:`ShardUnavailableError` if it is not found."""
    actor = actor_or_none(cluster, name)
    if actor is None:
        raise ShardUnavailableError(
            name,
            RETRY_AFTER_MS,
            "there is no such actor; is the node starting or stopping, or the topic being created?",
        )
    return actor


def actor_or_none(cluster: str, name: str) -> Any:
    """Return the actor of that name, or None; raise :class:`ShardUnavailableError` without Ray."""
    if not ray.is_initialized():  # otherwise Ray would start a cluster of its own
        raise ShardUnavailableError(name, RETRY_AFTER_MS, "this process has not joined Ray")
    try:
        return ray.get_actor(name, namespace=namespace_of(cluster))
    except ValueError:
        return None
    except RayError as error:  # Ray itself is unavailable
        raise ShardUnavailableError(name, RETRY_AFTER_MS, str(error)) from error
