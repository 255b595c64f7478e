"""The command ``rocketray bench``: measure this machine, one question at a time."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from rocketray.cli.arguments.options import JsonOption
from rocketray.cli.terminal.output import TextTable, emit, table_of

BENCHMARKS = {
    "send": "one producer, to four queues and to one: single, unbatched, lists, Arrow tables",
    "consume": "a backlog: an agent (bytes, JSON, Records, Arrow), a plain member, with filters",
    "latency": "from publishing to an agent's handler, and to a plain member, at 1000 messages a second",
}
"""Each is a module of this package; benchmarks/questions has those for developers, not shipped."""


def bench(
    name: Annotated[str | None, typer.Argument(help="The benchmark; default: list them.")] = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller and less exact; only checks that it runs.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run one benchmark, beside the machine's own limits.

    --json prints one object at the end: rows, each with question, value, unit and ceiling.

    Examples:
        rocketray bench
        rocketray bench latency --quick
    """
    from .report import run, to_json  # noqa: PLC0415 - imports all of rocketray

    if name is None:
        listed = [{"name": each, "question": question} for each, question in BENCHMARKS.items()]
        table = table_of(listed, ("name", "measures"), {"measures": "question"})
        emit(listed, table, as_json=as_json)
        return
    if name not in BENCHMARKS:
        raise typer.BadParameter(
            f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}"
        )
    rows = run(import_module(f"{__package__}.{name}"), quick=quick)
    cells = [(row.question, f"{row.value:,.6g}", row.unit, row.ceiling) for row in rows]
    table = TextTable(("question", "value", "unit", "ceiling"), cells, right=("value",))
    emit(to_json(rows), table, as_json=as_json)
