"""The coordinator's service for the node as a whole."""

from __future__ import annotations

from typing import Protocol

from rocketray.actors.calls.endpoint import COORDINATOR_NAME, Endpoint, waits

__all__ = ["NODE", "NodeApi"]


class NodeApi(Protocol):
    """The calls about a node; see ``CoordinatorActor``."""

    def problems(self) -> list[str]:
        """Return the problems of the node, a line each; none when it is healthy."""

    @waits
    def open_gateway(self, disk: str) -> None:
        """Start the gateway of a disk; return when members on other machines may join."""


NODE = Endpoint(COORDINATOR_NAME, NodeApi)
