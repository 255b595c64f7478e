"""The command ``rocketray demo``: the main job on real data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rocketray.cli.arguments.options import JsonOption
from rocketray.cli.terminal.output import emit


def demo(
    *,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only the first N of 336,776 flights.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Resume an earlier run, from its run directory.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="A node's data directory to run on; by default one in the run directory.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the main job on real flights, and check the result.

    The flights are those that left New York in 2013.

    Starts a node, sends every flight to a topic of four queues, and at the same time filters them
    by tag, by SQL and by a Python predicate in Faust agents, and by SQL into Parquet files with
    Spark. Then looks messages up by id, key and time, and compares all counts with a brute-force
    pass over the original data. The exit code is 1 if they differ.

    Each run gets a directory of its own, runs/<time>; --resume DIR resumes an interrupted one.

    Examples:
        rocketray demo
        rocketray demo --limit 20000
    """
    from .run import run_demo  # noqa: PLC0415 - imports Ray and Spark

    report = run_demo(limit=limit, resume=resume, data=data)
    emit(report.to_json(), report.shown(), as_json=as_json)
    if not report.ok:
        raise typer.Exit(1)
