"""Printing: JSON lines for programs, tables for people. Each line is flushed when it is whole."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

__all__ = ["as_time", "print_json", "print_line", "print_table", "progress"]


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
    """A table that fits the terminal (see table.py); the columns in *right* are numbers.

    Where stdout is no terminal, each row is one line.
    """
    from .table import table_lines  # noqa: PLC0415 - commands that print JSON do without rich

    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table_lines(columns, cells, right, width):
        print_line(line)


def progress(text: str) -> None:
    """One line on stderr, for people who wait."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def as_time(milliseconds: int | None) -> str | None:
    """Local time, to the second."""
    if milliseconds is None:
        return None
    when = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    return when.strftime("%Y-%m-%d %H:%M:%S")
