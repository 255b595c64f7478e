"""Printing: JSON lines for programs, tables for people. Each line is flushed when it is whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

__all__ = ["print_json", "print_line", "print_table", "progress"]

_TABLE_WIDTH = 120  # where stdout is no terminal


def print_line(text: str) -> None:
    """One line on stdout, flushed."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_json(value: object) -> None:
    """*value* as one line of JSON in ASCII, so that lone surrogates come out as they went in."""
    print_line(json.dumps(value))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()
) -> None:
    """A table without frames; the columns in *right* are numbers, aligned to the right."""
    from rich import box  # noqa: PLC0415 - commands that print JSON do without rich
    from rich.console import Console  # noqa: PLC0415 - the same
    from rich.table import Table  # noqa: PLC0415 - the same

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    width = None if sys.stdout.isatty() else _TABLE_WIDTH
    Console(width=width, highlight=False, markup=False).print(table)


def progress(text: str) -> None:
    """One line on stderr, for people who wait."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
