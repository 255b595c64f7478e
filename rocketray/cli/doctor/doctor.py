"""``rocketray doctor``: what is wrong with this machine and a data directory, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer

from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption, JsonOption
from rocketray.cli.terminal.output import print_json, print_line
from rocketray.errors import NodeNotRunningError, StreamError
from rocketray.settings_file import CONFIG_VARIABLE, SettingsFile, read_settings

from .health_checks import Finding

__all__ = ["doctor"]

_PORTS = (("start", "fetch-port"), ("metrics", "port"))


def doctor(*, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False) -> None:
    """Check this machine and a data directory.

    Each check is a line: ok, warning or error, with what was found and what to do. They are about
    the settings file, Python, packages, Java for Spark, the disk and its file system, shared
    memory, the clock, limits, Ray's access and priority, ports, and what ended nodes left; and the
    problems that a running node reports. Nothing is changed. With an error, the exit code is 1.

    Example: rocketray doctor --json
    """
    from .health_facts import findings  # noqa: PLC0415 - not for help

    worst = "ok"
    settings = read_settings()
    for found in (_of_settings(settings), *findings(data, _ports(settings)), *_of_node(data)):
        if worst != "error" and found.level != "ok":
            worst = found.level
        if as_json:
            print_json(found._asdict())
            continue
        print_line(f"{found.level:7}  {found.check:13}  {found.text}")
        if found.advice:
            print_line(f"{'':7}  {'':13}  → {found.advice}")
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


def _of_node(data: Path) -> Iterator[Finding]:
    """Yield what the running node reports of itself."""
    from rocketray.cli.arguments.node import ask  # noqa: PLC0415 - as above

    try:
        with ask(data) as node:
            problems = node.problems()
    except NodeNotRunningError:
        yield Finding("node", "ok", f"no node runs on {data}")
        return
    except (StreamError, OSError) as error:
        yield Finding("node", "error", f"it does not answer: {error}")
        return
    for problem in problems:
        yield Finding("node", "error", problem)
    if not problems:
        yield Finding("node", "ok", f"the node on {data} reports no problem")
