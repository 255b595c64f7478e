"""The coordinator's service for the node as a whole."""

from __future__ import annotations

from typing import Protocol

from rocketray.broker.shards.shard_api import ScrubState
from rocketray.runtime.calls.endpoint import COORDINATOR_NAME, Endpoint, waits


class NodeApi(Protocol):
    """The calls about a node; see ``CoordinatorActor``."""

    def problems(self) -> list[str]:
        """Return the problems of the node, a line each; none when it is healthy."""

    @waits
    def unflushed(self) -> dict[str, int | None]:
        """Return the age in ms of the oldest message that is not on disk, by ``topic/queue``.

        It is 0 where all are on disk, and None where the shard's process does not answer. Closed
        queues are left out.
        """

    @waits
    def scrubs(self) -> dict[str, ScrubState | None]:
        """Return how far each open shard was read again, by ``topic/queue``, and damage in it.

        None where the shard's process does not answer.
        """

    @waits
    def open_gateway(self, disk: str) -> None:
        """Start the gateway of a disk; return when members on other machines may join."""


NODE = Endpoint(COORDINATOR_NAME, NodeApi)
