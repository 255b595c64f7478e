"""``rocketray doctor``: what is wrong with this machine and a data directory, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer

from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption, JsonOption
from rocketray.cli.terminal.output import print_json, print_line
from rocketray.errors import NodeNotRunningError, StreamError

from .health_checks import Finding

__all__ = ["doctor"]


def doctor(*, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False) -> None:
    """Check this machine and a data directory.

    Each check is a line: ok, warning or error, with what was found and what to do. They are about
    Python, packages, Java for Spark, the disk and its file system, shared memory, the clock,
    limits, Ray's access and priority, ports, and what ended nodes left; and the problems that a
    running node reports. Nothing is changed. With an error, the exit code is 1.

    Example: rocketray doctor --json
    """
    from .health_facts import findings  # noqa: PLC0415 - not for help

    worst = "ok"
    for found in (*findings(data, {}), *_of_node(data)):
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
