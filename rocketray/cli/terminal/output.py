"""Output: JSON lines for programs, tables for users. Each line is flushed when it is complete."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

__all__ = [
    "OutputClosedError",
    "as_time",
    "counted",
    "drop_output",
    "print_any_text",
    "print_json",
    "print_line",
    "print_table",
    "progress",
]


class OutputClosedError(Exception):
    """The reader of stdout closed it, as ``head`` does: further output would be lost."""


def print_line(text: str) -> None:
    """Print one line on stdout, and flush it.

    Raises:
        OutputClosedError: the reader closed stdout.
    """
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosedError from None


def drop_output() -> None:
    """Discard what is still to be printed: a failure at exit could not be reported any more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_any_text() -> None:
    """Print characters that stdout's encoding lacks as ASCII escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def print_json(value: object) -> None:
    """Print *value* as one line of JSON in ASCII, which preserves lone surrogates."""
    print_line(json.dumps(value))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()
) -> None:
    """Print a table that fits the terminal (see table.py); the columns in *right* are numbers.

    If stdout is no terminal, each row is one line.
    """
    from .table import table_lines  # noqa: PLC0415 - commands that print JSON do without rich

    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table_lines(columns, cells, right, width):
        print_line(line)


def progress(text: str) -> None:
    """Print one line of progress on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: "1 queue", "2 queues"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def as_time(milliseconds: int | None) -> str | None:
    """Return a local time, to the second."""
    if milliseconds is None:
        return None
    when = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    return when.strftime("%Y-%m-%d %H:%M:%S")
