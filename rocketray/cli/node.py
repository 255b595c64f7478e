"""The way from a command to the node; Ray is imported here, and only when a command needs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketray.actors.client import Connection

__all__ = ["connect"]


def connect(data: Path) -> Connection:
    """A connection to the node on *data*.

    Raises:
        NodeNotRunningError: none runs there; the message names the command that starts one.
    """
    from rocketray.actors.client import Connection  # noqa: PLC0415 - importing Ray takes a second

    return Connection.open(data)
