"""``rocketray console``: the node in a browser."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.actors.runtime.clock import system_clock_ms
from rocketray.actors.runtime.signal_handlers import stop_signals
from rocketray.cli.arguments.node import chosen_cluster
from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption
from rocketray.cli.terminal.output import print_line, progress
from rocketray.cluster import chosen_node
from rocketray.errors import ActorError, ConfigError
from rocketray.views.trace_links import check_trace_url

if TYPE_CHECKING:
    from rocketray.actors.api.node_client import NodeClient

__all__ = ["HostRecords", "console", "doctor_records"]

_PORT = 8480
_ROCKETRAY = (sys.executable, "-P", "-m", "rocketray")
_STATUS = (*_ROCKETRAY, "status", "--json")
_DOCTOR = (*_ROCKETRAY, "doctor", "--json")
_COMMAND_S = 60.0
_KEPT_S = 10.0  # the command takes two seconds


def console(
    *,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="The port; 0 for any free one.")
    ] = _PORT,
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

    \b
    rocketray console
    rocketray console --port 0 --data ./rocketray-data
    rocketray console --trace-url "http://localhost:16686/trace/{trace_id}"

    Prints a link with a token; the browser keeps a cookie of it. It has a live tail with a filter's
    verdict on each message, topics, groups with their lag, messages and why each group got them,
    dead letters, transactions, apps and the node. Each page is JSON at the same address with .json,
    for programs that send the token as Authorization: Bearer.

    The console asks the node as commands do, and continues when the node is started again. Redrives
    and recalls are written to DATA/console-audit.jsonl before they begin. Ctrl-C stops it.

    Beyond loopback the token crosses the network in plain text: use an SSH tunnel, or a proxy with
    TLS.
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    traces = None if trace_url is None else check_trace_url(trace_url)
    if chosen_cluster() is not None:
        raise ConfigError("the console reads the node's files: run it on the node's machine")
    directory = chosen_node(None if data is DATA_DEFAULT else data)
    if not isinstance(directory, Path):
        raise ConfigError("the console reads the node's files: run it on the node's machine")
    import asyncio  # noqa: PLC0415 - not for help

    from rocketray.actors.client.asked_node import open_node  # noqa: PLC0415 - the same
    from rocketray.console.access import ConsoleAccess  # noqa: PLC0415 - imports aiohttp
    from rocketray.console.console_server import ConsoleParts  # noqa: PLC0415 - the same
    from rocketray.console.serving import serve  # noqa: PLC0415 - the same

    access = ConsoleAccess(host, port=port)
    parts = ConsoleParts(
        directory,
        lambda: open_node(directory),
        access,
        system_clock_ms,
        HostRecords(directory),
        partial(doctor_records, directory),
        traces,
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
        if until_eof:  # of the node's process, however it ends
            threading.Thread(target=_end_at_eof, args=[signals.event], daemon=True).start()
        asyncio.run(serve(parts, signals.event, ready))


def _end_at_eof(ended: threading.Event) -> None:
    sys.stdin.buffer.read()
    ended.set()


class HostRecords:
    """The hosts of apps, as ``rocketray status --json`` prints them in a process of its own.

    Hosts are found through Ray, which ends a process that loses it at the wrong moment; the console
    outlives its node, so it stays without Ray. Records are kept for ``kept_s`` seconds.
    """

    def __init__(
        self, data: Path, command: Sequence[str] = _STATUS, kept_s: float = _KEPT_S
    ) -> None:
        self._command = [*command, "--data", str(data)]
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._kept: list[dict[str, Any]] = []
        self._until_s = 0.0

    def __call__(self, node: NodeClient) -> list[dict[str, Any]]:
        """Return the records; none without a process if the node has no apps.

        Raises:
            ActorError: the command does not answer.
        """
        from rocketray.actors.client.local_client import LocalClient  # noqa: PLC0415 - not for help

        if isinstance(node, LocalClient) and not node.has_apps():
            return []
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._kept = self._asked()
                self._until_s = time.monotonic() + self._kept_s
            return self._kept

    def _asked(self) -> list[dict[str, Any]]:
        return [record for record in _lines_of("status", self._command) if "host" in record]


def doctor_records(data: Path, command: Sequence[str] = _DOCTOR) -> list[dict[str, Any]]:
    """Return the checks of ``rocketray doctor --json``, which runs in a process of its own.

    Raises:
        ActorError: the command does not answer.
    """
    return _lines_of("doctor", [*command, "--data", str(data)])


def _lines_of(name: str, command: Sequence[str]) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ActorError(f"rocketray {name} did not answer within {_COMMAND_S:g} s") from None
    if done.returncode and not done.stdout:
        raise ActorError(f"rocketray {name} failed: {done.stderr.strip()[-500:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]
