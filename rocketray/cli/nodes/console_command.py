"""``rocketray console``: the node in a browser."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.base.cluster import Cluster
from rocketray.cli.arguments.found_hosts import apps_of
from rocketray.cli.arguments.node import chosen_place, connect
from rocketray.cli.arguments.options import (
    DATA_DEFAULT,
    DataOption,
    ListenAddressOption,
    ListenPortOption,
)
from rocketray.cli.terminal.output import print_line, progress
from rocketray.errors import ActorError, StoreError
from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.signal_handlers import stop_signals
from rocketray.views.message_links import check_trace_url

from .app_status import host_fields

if TYPE_CHECKING:
    from rocketray.messaging.api.node_client import NodeClient

_PORT = 8480
_ROCKETRAY = (sys.executable, "-P", "-m", "rocketray")  # -P: not from the current directory
_COMMAND_S = 60.0  # joining a Ray takes seconds, and longer on a busy machine


def console(
    *,
    host: ListenAddressOption = "127.0.0.1",
    port: ListenPortOption = _PORT,
    trace_url: Annotated[
        str | None,
        typer.Option(
            metavar="TEMPLATE",
            help="The address of a trace, with {trace_id} in it: messages with a trace link to it.",
        ),
    ] = None,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", hidden=True, help="End when stdin is closed.")
    ] = False,
    data: DataOption = DATA_DEFAULT,
) -> None:
    """Show the node in a browser.

    Prints a link with a token; the browser keeps a cookie of it. It has a live tail with a filter's
    verdict on each message, topics, groups with their lag, messages and why each group got them,
    dead letters, transactions, apps and the node. Each page is JSON at the same address with .json,
    for programs that send the token as Authorization: Bearer.

    The console asks the node as commands do, and continues when the node is started again. Changes
    are written to DATA/console-audit.jsonl before they begin. Ctrl-C stops it.

    With --cluster it runs on every machine of the Ray, and shows the topics of all disks. On a
    machine without a disk of the cluster it changes nothing, as it has no place for that file.

    Beyond loopback the token crosses the network in plain text: use an SSH tunnel, or a proxy with
    TLS.

    Examples:
        rocketray --cluster orders --ray-address 10.0.0.1:6379 console
        rocketray console --port 0 --trace-url "http://localhost:16686/trace/{trace_id}"
    """
    traces = None if trace_url is None else check_trace_url(trace_url)
    place = chosen_place(data)
    if isinstance(place, Cluster):
        place = _disk_here(place) or place
    import asyncio

    from rocketray.console.access import ConsoleAccess  # imports aiohttp
    from rocketray.console.console_server import ConsoleParts  # imports aiohttp
    from rocketray.console.serving import serve  # imports aiohttp

    access = ConsoleAccess(host, port=port)
    parts = ConsoleParts(
        place if isinstance(place, Path) else None,
        _opener(place),
        access,
        system_clock_ms,
        host_records,
        partial(_checks, place),
        traces,
    )
    if not access.is_loopback:
        progress(
            f"warning: {host} can be reached from other machines, and the token crosses the network "
            "in plain text; use an SSH tunnel, or a proxy with TLS"
        )

    def ready(link: str) -> None:
        print_line(f"console at {link}")
        progress("open the link in a browser; Ctrl-C stops")

    with stop_signals() as signals:
        if until_eof:  # of the node's process, however it ends
            threading.Thread(target=_end_at_eof, args=[signals.event], daemon=True).start()
        asyncio.run(serve(parts, signals.event, ready))


def _opener(place: Path | Cluster) -> Callable[[], NodeClient]:
    """Return what connects to the node; it is there now."""
    if isinstance(place, Cluster):
        connection = connect(DATA_DEFAULT, stays=True)
        return lambda: connection
    from rocketray.actors.client.node_connections import open_node

    open_node(place).close()
    return lambda: open_node(place)


def _disk_here(cluster: Cluster) -> Path | None:
    """Return the directory of the cluster's disk on this machine, if its node runs.

    Over the node's own socket the console needs no Ray. This process asks for the disks in another
    one: Ray ends a process that loses it at the wrong moment.
    """
    from rocketray.actors.client.local_transport import open_local
    from rocketray.runtime.files.home import has_identity

    for disk in _lines_of("the console does not start", _command(cluster, "topology")):
        if "disk" not in disk:
            continue
        data = Path(disk["directory"])
        with suppress(OSError, StoreError):
            # A directory that is damaged, or another user's, is as good as one of another machine.
            if has_identity(data, disk["disk"]) and (link := open_local(data)) is not None:
                link.close()
                return data
    return None


def _command(place: Path | Cluster, name: str) -> list[str]:
    """Return a command about the node that prints JSON."""
    if isinstance(place, Path):
        return [*_ROCKETRAY, name, "--json", "--data", str(place)]
    address = [] if place.ray_address is None else ["--ray-address", place.ray_address]
    return [*_ROCKETRAY, "--cluster", place.name, *address, name, "--json"]


def _checks(place: Path | Cluster) -> list[dict[str, Any]]:
    return doctor_records(_command(place, "doctor"))


def _end_at_eof(ended: threading.Event) -> None:
    sys.stdin.buffer.read()
    ended.set()


def host_records(node: NodeClient) -> list[dict[str, Any]]:
    """Return the hosts of apps, as ``rocketray status --json`` prints them."""
    return [host_fields(host) for host in apps_of(node).hosts(None)]


def doctor_records(command: Sequence[str]) -> list[dict[str, Any]]:
    """Return the checks of ``rocketray doctor --json``, which runs in a process of its own.

    Raises:
        ActorError: the command does not answer.
    """
    return _lines_of("rocketray doctor failed", command)


def _lines_of(failed: str, command: Sequence[str]) -> list[dict[str, Any]]:
    """Return what *command* prints as JSON; *failed* begins the error if it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired:
        said = f"{failed}: no answer within {_COMMAND_S:g} s; try again"
        raise ActorError(said) from None
    if done.returncode and not done.stdout:
        said = done.stderr.strip().removeprefix("rocketray: ")[-500:]
        raise ActorError(f"{failed}: {said}")
    return [json.loads(line) for line in done.stdout.splitlines()]
