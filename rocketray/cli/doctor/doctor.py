"""``rocketray doctor``: what is wrong with this machine and a data directory, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rocketray.base.settings_file import CONFIG_VARIABLE, SettingsFile, read_settings
from rocketray.cli.arguments.directories import directories_here, named_cluster, none_here
from rocketray.cli.arguments.node import ask, chosen_place
from rocketray.cli.arguments.options import CommonOptions
from rocketray.errors import NodeNotRunningError, StreamError

from .health_checks import Finding

if TYPE_CHECKING:
    from rocketray.runtime.files.home import Home

_PORTS = (("start", "fetch-port"), ("metrics", "port"))


def doctor(*, common: CommonOptions) -> None:
    """Check this machine and a data directory.

    Each check is a line: ok, warning or error, with what was found and what to do. They are about
    the settings file, Python, packages, Java for Spark, the disk and its file system, shared
    memory, the clock, limits, Ray's access and priority, ports, and what ended nodes left; and the
    problems that a running node reports. Of a cluster (--cluster) the directories of its disks on
    this machine are checked. Nothing is changed. With an error, the exit code is 1.

    Examples:
        rocketray doctor
        rocketray doctor --data /srv/stream --json
    """
    from .health_facts import findings

    worst = "ok"
    settings = read_settings()
    directories, told = _of_node(common.data)
    for found in (_of_settings(settings), *findings(directories, _ports(settings)), *told):
        if worst != "error" and found.level != "ok":
            worst = found.level
        lines = [f"{found.level:7}  {found.check:13}  {found.text}"]
        if found.advice:
            lines.append(f"{'':7}  {'':13}  → {found.advice}")
        common.emit(found._asdict(), lines)
    if worst == "error":
        raise typer.Exit(1)


def _of_settings(settings: SettingsFile) -> Finding:
    """Return which file was read: the command does not begin with a wrong one."""
    if settings.path is None:
        return Finding("settings", "ok", f"no file: no rocketray.toml here, no {CONFIG_VARIABLE}")
    return Finding("settings", "ok", f"read from {settings.path}")


def _ports(settings: SettingsFile) -> dict[str, int]:
    """Return the ports that the file names, by the command and option."""
    found = {}
    for command, option in _PORTS:
        table = settings.commands.get(command, {})
        port = table.get(option, table.get(option.replace("-", "_")))
        if isinstance(port, int):
            found[f"{command} {option}"] = port
    return found


def _of_node(data: Path) -> tuple[list[Path], list[Finding]]:
    """Return the directories to check, and what the running node reports of itself.

    Of a cluster that is named where no directory is, they are those of its disks on this machine.
    """
    cluster = named_cluster(data)
    place = chosen_place(data)
    where = f"the node on {data}" if isinstance(place, Path) else f"cluster {place.name}"
    directories = [data] if cluster is None else []
    homes: list[Home] = []
    try:
        with ask(data) as node:
            problems = node.problems()
            if cluster is not None:
                homes = list(node.disks.homes().values())
    except NodeNotRunningError as error:
        if isinstance(place, Path):
            return directories, [Finding("node", "ok", f"no node runs on {data}")]
        told = Finding("node", "error", str(error))
    except (StreamError, OSError) as error:
        told = Finding("node", "error", f"{where} does not answer: {error}")
    else:
        found = [Finding("node", "error", problem) for problem in problems]
        found = found or [Finding("node", "ok", f"{where} reports no problem")]
        if cluster is None:
            return directories, found
        directories = directories_here(homes)
        if not directories:
            said = f"none is checked: {none_here(cluster, homes)}"
            found.insert(0, Finding("directory", "ok", said))
        return directories, found
    if cluster is None:
        return directories, [told]
    said = f"none is checked: which one here belongs to cluster {cluster.name!r} is unknown"
    return [], [
        Finding("directory", "warning", said, "name it with --data, without --cluster"),
        told,
    ]
