"""The connection from a command to the node; Ray is imported here, and only if a command needs it.

Most commands :func:`ask` the node, over its own socket; those that send much or start something
:func:`connect`.

If the node is gone, Ray does not answer a call. The command would wait for a minute, then Ray ends
the process without a message meant for users. So a thread checks the node's process, and ends the
command some seconds after it, unless the command has ended itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rocketray.base.cluster import Cluster, chosen_node
from rocketray.base.data_directory import DATA_VARIABLE, DEFAULT_DATA, data_directory
from rocketray.base.environment import process_environ
from rocketray.base.settings_file import read_settings
from rocketray.cli.terminal.output import progress
from rocketray.cli.terminal.waiting import waiting
from rocketray.errors import ConfigError

if TYPE_CHECKING:
    from rocketray.actors.client.connected_client import LocalClient
    from rocketray.actors.client.connection import Connection
    from rocketray.actors.client.node_connections import NodeConnections

    AskedClient = LocalClient | Connection
    """What :func:`ask` returns."""

_LOOK_AGAIN_S = 1.0  # a look reads files of the node and /proc
_GRACE_S = 10.0  # the command notices it by itself within a few
_STDERR = 2
RAY_LOG = "commands.err"
"""The file in the node's logs with what Ray prints in the processes of commands."""


_CHOSEN: list[Cluster] = []  # by an option before the command's name


def choose_cluster(cluster: Cluster | None) -> None:
    """Have :func:`connect` use *cluster*, if one is named before the command."""
    _CHOSEN[:] = [] if cluster is None else [cluster]


def chosen_cluster() -> Cluster | None:
    """Return the cluster that is named before the command."""
    return _CHOSEN[0] if _CHOSEN else None


def connect(data: Path, *, stays: bool = False) -> Connection:
    """Connect to the node on *data*, or of the cluster; print progress if that takes long.

    A command that *stays* continues when the node is started again; any other ends with it.

    Raises:
        NodeNotRunningError: no node runs there; the message names the command that starts one.
        NodeElsewhereError: it runs on another machine.
        ConfigError: --data and --cluster are both given.
    """
    place = chosen_place(data)
    is_command = ray_stderr_in_file(data)
    said = f"the node on {data}" if isinstance(place, Path) else f"cluster {place.name}"
    with waiting(f"connecting to {said}"):
        from rocketray.actors.client.connection import Connection  # imports Ray

        connection = Connection.to(place)
    if is_command and not stays:
        threading.Thread(target=end_with_node, args=(connection,), daemon=True).start()
    return connection


def ask(data: Path, *, stays: bool = False) -> AskedClient:
    """Return a client of the node on *data*, or of the cluster.

    On the node's machine it uses the node's own socket, without Ray; else it connects. A command
    that *stays* continues when the node is started again. Raises as :func:`connect`.
    """
    from rocketray.actors.client.connected_client import LocalClient
    from rocketray.actors.client.local_transport import open_local
    from rocketray.actors.client.reconnecting_transport import ReconnectingTransport

    place = chosen_place(data)
    opened = ReconnectingTransport.open if stays else open_local
    local = opened(place.resolve()) if isinstance(place, Path) else None
    return connect(data, stays=stays) if local is None else LocalClient(local)


def node_connections(data: Path) -> NodeConnections[AskedClient]:
    """Return connections to the node on *data*, or of the cluster, for a command that keeps asking.

    A command that uses the node's own socket continues when the node is started again. Raises as
    :func:`connect`, with the first question.
    """
    from rocketray.actors.client.node_connections import NodeConnections, open_node  # slow

    def open_again() -> AskedClient:
        place = chosen_place(data)
        if opened and isinstance(opened[0], LocalClient) and isinstance(place, Path):
            return open_node(place)
        opened[:] = [ask(data)]
        return opened[0]

    from rocketray.actors.client.connected_client import LocalClient

    opened: list[AskedClient] = []
    return NodeConnections(open_again)


def chosen_place(data: Path) -> Path | Cluster:
    """Return the node of *data*, if it is given as an option, else what else says.

    Raises:
        ConfigError: --data and --cluster are both given.
    """
    otherwise = process_environ().get(DATA_VARIABLE), str(read_settings().data)
    # typer does not say where a value is from: the environment's and the file's look like the
    # option's. So an option that repeats one of them counts as not given, which names the same
    # place.
    is_given = data is not DEFAULT_DATA and str(data) not in otherwise
    cluster = chosen_cluster()
    if cluster is None:
        return chosen_node(data if is_given else None)
    if is_given:
        raise ConfigError(
            f"--data {data} and --cluster {cluster.name} name two nodes; leave one out"
        )
    return cluster


def end_with_node(
    connection: Connection, leave: Callable[[int], object] = os._exit, grace_s: float = _GRACE_S
) -> None:
    """Wait until the node's process has ended, and *grace_s* more; then say so and *leave*."""
    from rocketray.runtime.machine import whereabouts

    description = connection.node
    while description is None or whereabouts(description) != "gone":
        time.sleep(_LOOK_AGAIN_S)
    time.sleep(grace_s)
    progress(
        f"rocketray: the node on {connection.data} has ended; start it again with: rocketray start "
        f"--data {connection.data}"
    )
    leave(1)


def ray_stderr_in_file(data: Path) -> bool:
    """Redirect file 2 to the node's log on *data*; ``sys.stderr`` keeps the old one.

    Ray prints its errors on file 2, whatever Python has as ``sys.stderr``, and has no switch for
    it: twenty lines where a token is wrong, one a second where a node was lost. The command reports
    itself what failed and what to do. ``start`` redirects from the moment that its node is ready.
    In a user's program, file 2 is not changed.

    Returns whether it did: it has no effect if ``sys.stderr`` is not file 2, as in a program that
    runs the command.
    """
    before = sys.__stderr__
    if before is None or sys.stderr is not before or before.fileno() != _STDERR:
        return False
    before.flush()
    # A copy of file 2 as it was, before that is replaced.
    terminal = os.fdopen(
        os.dup(_STDERR), "w", buffering=1, encoding=before.encoding, errors=before.errors
    )
    file = _open(data)
    os.dup2(file, _STDERR)
    os.close(file)
    # faulthandler writes to the latter
    sys.stderr = sys.__stderr__ = terminal  # type: ignore[misc]
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is before:
            handler.setStream(terminal)
    return True


def _open(data: Path) -> int:
    """Open the end of the file in the node's logs, or the null device if there is no node."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        logs = json.loads((data_directory(data) / "node.json").read_text())["logs"]
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(Path(logs) / RAY_LOG, flags, 0o600)
    return os.open(os.devnull, os.O_WRONLY)
