"""``rocketray console``: the node in a browser."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.actors.runtime.clock import system_clock_ms
from rocketray.actors.runtime.signal_handlers import stop_signals
from rocketray.cli.arguments.node import chosen_cluster, connect
from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption
from rocketray.cli.terminal.output import print_line, progress
from rocketray.cluster import chosen_node
from rocketray.errors import ConfigError

from .app_status import host_record

if TYPE_CHECKING:
    from rocketray.actors.api.node_client import NodeClient
    from rocketray.actors.client.connection import Connection

__all__ = ["console"]

_PORT = 8480


def console(
    *,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="The port; 0 for any free one.")
    ] = _PORT,
    data: DataOption = DATA_DEFAULT,
) -> None:
    """Show the node in a browser.

    \b
    rocketray console
    rocketray console --port 0 --data ./rocketray-data

    Prints a link with a token; the browser keeps a cookie of it. It has a live tail with a filter's
    verdict on each message, topics, groups with their lag, messages and why each group got them,
    dead letters, transactions, apps and the node. Each page is JSON at the same address with .json,
    for programs that send the token as Authorization: Bearer.

    The console asks the node as commands do, and continues when the node is started again. Redrives
    and recalls are written to DATA/console-audit.jsonl before they begin. Ctrl-C stops it.

    Beyond loopback the token crosses the network in plain text: use an SSH tunnel, or a proxy with
    TLS.
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    if chosen_cluster() is not None:
        raise ConfigError("the console reads the node's files: run it on the node's machine")
    directory = chosen_node(None if data is DATA_DEFAULT else data)
    if not isinstance(directory, Path):
        raise ConfigError("the console reads the node's files: run it on the node's machine")
    import asyncio  # noqa: PLC0415 - not for help

    from rocketray.console.access import ConsoleAccess  # noqa: PLC0415 - imports aiohttp
    from rocketray.console.console_link import open_node  # noqa: PLC0415 - the same
    from rocketray.console.console_server import ConsoleParts  # noqa: PLC0415 - the same
    from rocketray.console.serving import serve  # noqa: PLC0415 - the same

    access = ConsoleAccess(host, port=port)
    parts = ConsoleParts(
        directory,
        lambda: open_node(directory),
        access,
        system_clock_ms,
        _HostRecords(directory),
    )
    open_node(directory).close()
    if not access.is_loopback:
        progress(
            f"warning: {host} can be reached from other machines, and the token crosses the network "
            "in plain text; use an SSH tunnel, or a proxy with TLS"
        )

    def ready(link: str) -> None:
        print_line(f"console at {link}")
        progress("open the link in a browser; Ctrl-C stops")

    with stop_signals() as signals:
        asyncio.run(serve(parts, signals.event, ready))


class _HostRecords:
    """The hosts of apps, as ``status`` prints them; without any, Ray and Faust are not imported.

    The connection stays open: the clients' watch leaves a lost Ray, which would end the process.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def __call__(self, node: NodeClient) -> list[dict[str, Any]]:
        from rocketray.actors.client.local_client import LocalClient  # noqa: PLC0415 - not for help

        if isinstance(node, LocalClient) and not node.has_apps():
            return []
        from rocketray.topology.hosting.hosting import find_hosts  # noqa: PLC0415 - Ray, Faust

        with self._lock:
            if self._connection is None:
                self._connection = connect(self._data, stays=True)
            self._connection.topics.all()  # raises while Ray is lost; the next call would start one
            return [host_record(host) for host in find_hosts(self._connection.cluster)]
