"""``rocketray logs``: what apps and a node's processes printed and logged, also ended ones."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rocketray.base.json_fields import json_fields
from rocketray.base.meant import meant
from rocketray.cli.arguments.completions import complete_logs
from rocketray.cli.arguments.directories import directories_here, named_cluster, none_here
from rocketray.cli.arguments.found_hosts import apps_of
from rocketray.cli.arguments.lookup_options import parse_since
from rocketray.cli.arguments.node import ask
from rocketray.cli.arguments.options import CommonOptions
from rocketray.cli.terminal.output import as_time, progress, table_of
from rocketray.errors import ConfigError, NodeNotRunningError

if TYPE_CHECKING:
    from rocketray.hosting.host_status import Host
    from rocketray.runtime.process_logs.log_index import LogEntry
    from rocketray.runtime.process_logs.log_tails import LogTail, PartLine

_LINES = 200
_LINES_MAX = 1_000_000  # the last lines are held in memory
_LOOK_S = 0.25  # how late a line is shown


def logs(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[APP|node|PART]",
            help="An app's id, one of its hosts (shop:0), the whole node, or one of its parts: "
            "coordinator, filter, gateway, shards.",
            autocompletion=complete_logs,
        ),
    ] = None,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines, too, until Ctrl-C.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only lines since a time, or within the last 10m, 2h or 3d."
        ),
    ] = None,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", metavar="N", min=0, max=_LINES_MAX, help="The last lines of all files."
        ),
    ] = _LINES,
    files: Annotated[
        bool, typer.Option("--files", help="Print where the logs are instead of what they say.")
    ] = False,
    common: CommonOptions,
) -> None:
    """Show what apps and the node's processes printed and logged.

    Those that have ended are shown, too.

    A line that a handler printed, or its error, names the agent and the message in hand: topic,
    queue, offset and id, for "rocketray explain".

    The processes of the node on --data are shown; it need not run. Of a cluster (--cluster) these
    are the processes of its disks on this machine, and the hosts of apps that run here:
    "rocketray status APP --json" names machines and files of all.
    Each file is limited to 32 MiB, and two older ones are kept.

    Examples:
        rocketray logs shop -f --since 10m
        rocketray logs node -n 50
    """
    from rocketray.runtime.process_logs.log_tails import LogTail

    since_ms = None if since is None else parse_since(since)
    logged = _logged(common.data, stays=follow)
    chosen = _chosen(logged, name)
    if files:
        _show_files(chosen, common)
        return
    tails = [LogTail(entry, Path(file)) for entry in chosen for file in entry.files]
    show = _Show(chosen, common)
    try:
        _show_existing(tails, since_ms, lines, show)
        if follow:
            _follow(logged, name, tails, show)
    finally:
        for tail in tails:
            tail.close()


class _Logged(NamedTuple):
    """Where logs were looked for: what is there now, and what to say if there is nothing."""

    entries: Callable[[], list[LogEntry]]
    where: str
    nothing: str


def _logged(data: Path, *, stays: bool) -> _Logged:
    """Return the logs of the node on *data*, or what a cluster that is named has on this machine.

    Raises:
        NodeNotRunningError: the cluster does not answer, so its directories are unknown.
    """
    from rocketray.runtime.process_logs.log_index import read_logs

    cluster = named_cluster(data)
    if cluster is None:
        return _Logged(
            lambda: read_logs(data),
            f"on {data}",
            f"no process has logged on {data}: no node or app of this version was started there; "
            "name its data directory with --data",
        )
    try:
        with ask(data, stays=stays) as node:
            homes = list(node.disks.homes().values())
            hosts = _logs_here(apps_of(node).hosts(None))
    except NodeNotRunningError as error:
        raise NodeNotRunningError(
            f"{error}; logs are read on their machine also without it: name a data directory there "
            "with --data"
        ) from None
    directories = directories_here(homes)

    def entries() -> list[LogEntry]:
        noted = [entry for directory in directories for entry in read_logs(directory)]
        known = {entry.pid for entry in noted if entry.machine == socket.gethostname()}
        return noted + [entry for entry in hosts if entry.pid not in known]

    nothing = "no host of an app runs here"
    if not directories:
        nothing = f"{none_here(cluster, homes)}; and {nothing}"
    nothing += (
        f"; rocketray --cluster {cluster.name} status --json names machines and files of apps"
    )
    return _Logged(entries, f"here, of cluster {cluster.name}", nothing)


def _logs_here(hosts: Iterable[Host]) -> list[LogEntry]:
    """Return the logs of those hosts of apps that run on this machine, as they say themselves."""
    from rocketray.runtime.process_logs.log_index import LogEntry

    return [
        LogEntry(
            host.name,
            told.machine,
            told.pid,
            0 if told.version is None else told.version.loaded_ms,
            told.logs,
        )
        for host in hosts
        if (told := host.status) is not None and told.machine == socket.gethostname()
    ]


def _show_existing(tails: Sequence[LogTail], since_ms: int | None, lines: int, show: _Show) -> None:
    from rocketray.runtime.process_logs.log_tails import merged

    found = _last_of(merged(tails, since_ms), lines)
    if lines and (found.left or any(tail.was_cut for tail in tails)):
        progress(f"earlier lines are left out, at least {found.left}; see --lines and --since")
    show.all(found.last)
    _tell_of_none(tails, len(found.last) + found.left)


class _Found(NamedTuple):
    """The last lines, and how many there are before them."""

    last: Sequence[PartLine]
    left: int


def _last_of(found: Iterable[PartLine], most: int) -> _Found:
    last: deque[PartLine] = deque(maxlen=most)
    count = 0
    for each in found:
        last.append(each)
        count += 1
    return _Found(last, count - len(last))


class _Show:
    """Prints lines, each behind the name of its part, as wide as the widest of them."""

    def __init__(self, entries: Sequence[LogEntry], common: CommonOptions) -> None:
        self._width = max((len(entry.name) for entry in entries), default=0)
        self._common = common

    def all(self, found: Iterable[PartLine]) -> None:
        for each in found:
            if self._common.as_json:
                self._common.emit(_fields(each), ())
                continue
            name = f"{each.entry.name:{self._width}}"
            lines = (f"{name} │ {line}" for line in each.line.written.split("\n"))
            self._common.emit({}, lines)


def _follow(logged: _Logged, name: str | None, tails: list[LogTail], show: _Show) -> None:
    """Print what is appended, also by processes that start meanwhile, until Ctrl-C."""
    from rocketray.runtime.process_logs.log_tails import LogTail

    known = {tail.path for tail in tails}
    while True:
        for entry in logged.entries():
            if name is None or entry.is_named(name):
                added = [
                    LogTail(entry, path) for path in map(Path, entry.files) if path not in known
                ]
                known.update(tail.path for tail in added)
                tails.extend(added)
        found = [line for tail in tails for line in tail.new()]
        found.sort(key=lambda each: each.line.time_ms or 0)
        show.all(found)
        time.sleep(_LOOK_S)


def _chosen(logged: _Logged, name: str | None) -> list[LogEntry]:
    entries = logged.entries()
    if not entries:
        raise ConfigError(logged.nothing)
    chosen = [each for each in entries if name is None or each.is_named(name)]
    if not chosen and name is not None:
        known = sorted({each.name for each in entries} | {"node"})
        near = meant(name, known)
        said = f"did you mean {near[0]}?" if near else f"these have logs: {', '.join(known)}"
        raise ConfigError(f"nothing called {name!r} has logged {logged.where}; {said}")
    return chosen


def _tell_of_none(tails: Sequence[LogTail], count: int) -> None:
    """Say which logs are gone or elsewhere, and that there are no lines."""
    here = socket.gethostname()
    for tail in tails:
        if tail.is_missing and tail.entry.machine != here:
            progress(f"{tail.entry.name}: its log is on {tail.entry.machine}: {tail.path}")
    lost = sorted({t.entry.name for t in tails if t.is_missing and t.entry.machine == here})
    if lost:
        progress(f"logs of earlier processes were removed with Ray's session: {', '.join(lost)}")
    if not count:
        progress("nothing was printed or logged")


def _show_files(entries: Sequence[LogEntry], common: CommonOptions) -> None:
    from rocketray.runtime.processes import is_alive

    def state(entry: LogEntry) -> str:
        if entry.machine != socket.gethostname():
            return "unknown"
        return "running" if is_alive(entry.pid) else "ended"

    records = [
        {
            "part": entry.name,
            "machine": entry.machine,
            "pid": entry.pid,
            "started": as_time(entry.started_ms),
            "state": state(entry),
            "file": file,
        }
        for entry in entries
        for file in entry.files
    ]
    columns = ("part", "machine", "pid", "started", "state", "file")
    common.emit(records, table_of(records, columns))


def _fields(found: PartLine) -> dict[str, Any]:
    line, place = found.line, found.line.place
    fields: dict[str, Any] = {
        "part": found.entry.name,
        "machine": found.entry.machine,
        "pid": found.entry.pid,
        "time": line.time_ms,
        "level": line.level,
        "logger": line.logger,
        "text": line.text,
    }
    if place is not None:
        fields |= json_fields(place)
    return fields
