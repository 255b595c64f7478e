"""Finding a node's actors in Ray by their names."""

from __future__ import annotations

from typing import Any

from rocketray.errors import ShardUnavailableError
from rocketray.runtime.ray_process.ray_runtime import RayError, namespace_of, ray


def find_actor(cluster: str, name: str) -> Any:
    """Return the actor of that name; raise :class:`ShardUnavailableError` if it is not found."""
    actor = actor_or_none(cluster, name)
    if actor is None:
        reason = "there is no such actor: the node starts or stops, or the topic is being created"
        raise ShardUnavailableError(f"actor {name}", reason)
    return actor


def actor_or_none(cluster: str, name: str) -> Any:
    """Return the actor of that name, or None; raise :class:`ShardUnavailableError` without Ray."""
    if not ray.is_initialized():  # otherwise Ray would start a cluster of its own
        raise ShardUnavailableError(f"actor {name}", "this process has not joined Ray")
    try:
        return ray.get_actor(name, namespace=namespace_of(cluster))
    except ValueError:
        return None
    except RayError as error:  # Ray itself is unavailable
        raise ShardUnavailableError(f"actor {name}", str(error)) from error
