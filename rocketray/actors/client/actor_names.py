"""Finding a node's actors in Ray by their names."""

from __future__ import annotations

from typing import Any

from rocketray.actors.ray_process.ray_runtime import RayError, namespace_of, ray
from rocketray.errors import ShardUnavailableError

__all__ = ["APP_PREFIX", "RETRY_AFTER_MS", "actor_or_none", "find_actor", "has_apps"]

APP_PREFIX = "app:"
"""What the names of actors begin with that run apps (topology/hosting)."""
RETRY_AFTER_MS = 1000


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


def has_apps(cluster: str) -> bool:
    """Return whether actors of the cluster run apps; raise RayError if Ray does not say."""
    namespace = namespace_of(cluster)
    return any(
        each["namespace"] == namespace and each["name"].startswith(APP_PREFIX)
        for each in ray.util.list_named_actors(all_namespaces=True)
    )
