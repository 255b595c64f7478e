"""The connection from a command to the node; Ray is imported here, and only if a command needs it.

If the node is gone, Ray does not answer a call. The command would wait for a minute, then Ray ends
the process without a message meant for users. So a thread checks the node's process, and ends the
command some seconds after it, unless the command has ended itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rocketray.cli.terminal.output import progress
from rocketray.cli.terminal.ray_stderr import ray_stderr_in_file
from rocketray.cli.terminal.waiting import waiting

if TYPE_CHECKING:
    from rocketray.actors.client.connection import Connection

__all__ = ["connect", "end_with_node"]

_LOOK_AGAIN_S = 1.0
_GRACE_S = 10.0  # the command notices it by itself within a few


def connect(data: Path) -> Connection:
    """Connect to the node on *data*; print progress if that takes long.

    Raises:
        NodeNotRunningError: no node runs there; the message names the command that starts one.
        NodeElsewhereError: it runs on another machine.
    """
    is_command = ray_stderr_in_file(data)
    with waiting(f"connecting to the node on {data}"):
        from rocketray.actors.client.connection import Connection  # noqa: PLC0415 - slow

        connection = Connection.open(data)
    if is_command:
        threading.Thread(target=end_with_node, args=(connection,), daemon=True).start()
    return connection


def end_with_node(
    connection: Connection, leave: Callable[[int], object] = os._exit, grace_s: float = _GRACE_S
) -> None:
    """Wait until the node's process has ended, and *grace_s* more; then say so and *leave*."""
    from rocketray.actors.runtime.machine import whereabouts  # noqa: PLC0415 - as above

    description = connection.node
    while description is None or whereabouts(description) != "gone":
        time.sleep(_LOOK_AGAIN_S)
    time.sleep(grace_s)
    progress(
        f"rocketray: the node on {connection.data} has ended; start it again with: rocketray start "
        f"--data {connection.data}"
    )
    leave(1)
