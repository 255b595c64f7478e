"""The transport of calls over Ray: from this process to the actors of one node.

A call whose actor is unavailable raises :class:`ShardUnavailableError`; Ray restarts the actors.
Errors of ours are raised here as they were raised there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketray.actors.calls.endpoint import COORDINATOR_NAME, Endpoint, does_wait, method_of
from rocketray.actors.ray_process.ray_runtime import (
    GetTimeoutError,
    RayError,
    RayTaskError,
    raised_there,
    ray,
)
from rocketray.actors.runtime.machine import whereabouts
from rocketray.errors import NodeNotRunningError, ShardUnavailableError, StreamError

from .actor_names import RETRY_AFTER_MS, find_actor

__all__ = ["CALL_TIMEOUT_S", "WAITING_GROUP", "RayTransport"]

CALL_TIMEOUT_S = 60.0
WAITING_GROUP = {"waiting": 16}
"""Ray's concurrency group for calls that wait for other actors: its name and threads."""
_LOOK_S = 1.0


class RayTransport:
    """Calls to the actors of the node on one data directory; safe to use from several threads."""

    def __init__(self, data: Path, node: Mapping[str, Any] | None = None) -> None:
        """Find the coordinator of the Ray that is joined; *node* is the content of node.json."""
        self._data = data
        self._node = node
        self._coordinator = find_actor(COORDINATOR_NAME)
        self._left: StreamError | None = None

    def lose(self, error: StreamError) -> None:
        """Raise *error* from now on: Ray is lost, and a call would wait or start another Ray."""
        self._left = error

    def call(self, endpoint: Endpoint[Any], method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the endpoint's object, and return its result or raise its error."""
        entry = self.actor(endpoint.actor).call
        if does_wait(method_of(endpoint.interface, method)):
            [group] = WAITING_GROUP
            entry = entry.options(concurrency_group=group)
        return self.result(entry.remote(endpoint.interface.__name__, method, *arguments, **options))

    def actor(self, name: str) -> Any:
        """Return an actor of the node; raise :class:`ShardUnavailableError` if it is not found."""
        if self._left is not None:
            raise self._left
        return self._coordinator if name == COORDINATOR_NAME else find_actor(name)

    def result(self, reference: Any) -> Any:
        """Return the result of a call of an actor."""
        try:
            return self._answer(reference)
        except RayTaskError as error:
            raise raised_there(error, self._data) from None
        except RayError as error:  # an actor or its result is unavailable, or it times out
            raise ShardUnavailableError("or coordinator", RETRY_AFTER_MS, str(error)) from error

    def _answer(self, reference: Any) -> Any:
        """Wait for a result while the node's process lives: without it Ray may never answer."""
        end = time.monotonic() + CALL_TIMEOUT_S
        while True:
            if self._left is not None:
                raise self._left
            try:
                return ray.get(reference, timeout=min(_LOOK_S, max(0, end - time.monotonic())))
            except GetTimeoutError:
                if self._node and whereabouts(self._node) != "here":
                    raise NodeNotRunningError(
                        f"the node on {self._data} has ended; it did not answer before; start it "
                        f"again with: rocketray start --data {self._data}"
                    ) from None
                if time.monotonic() >= end:
                    raise
