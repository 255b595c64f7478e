"""Output: JSON lines for programs, tables for users. Each line is flushed when it is complete."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import select
import shutil
import stat
import sys
import termios
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import NoneType
from typing import Any

_PIPE_BYTES = 4096  # one page, the least: such a pipe can be written to when it is empty
_LOOK_MS = 250  # how long a signal may go unseen
_PAUSE_S = 0.001  # a waiting reader takes what is there within microseconds


class OutputClosedError(Exception):
    """The reader of stdout closed it, as ``head`` does: further output would be lost."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table for people; the columns in ``right`` are numbers, as in :func:`print_table`."""

    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    right: Sequence[str] = ()


Records = Mapping[str, Any] | Iterable[Mapping[str, Any]]
Shown = str | TextTable | Iterable[str | TextTable]


def emit(found: Records, shown: Shown, *, as_json: bool) -> None:
    """Print what a command *found*: as JSON, a line for each record; or as people are *shown* it.

    Either is one or several: a record, or records; a line or a table, or lines and tables in their
    order. Only what is printed is iterated, so generators do no work for the other form.
    """
    if as_json:
        for record in [found] if isinstance(found, Mapping) else found:
            print_json(record)
        return
    for part in [shown] if isinstance(shown, str | TextTable) else shown:
        if isinstance(part, str):
            print_line(part)
        else:
            print_table(part.columns, part.rows, right=part.right)


def print_line(text: str) -> None:
    """Print one line on stdout, and flush it.

    Raises:
        OutputClosedError: the reader closed stdout.
        OSError: it cannot be written; it names stdout.
    """
    with _writing():
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def print_bytes(data: bytes) -> None:
    """Write bytes to stdout as they are, and flush them; raises as :func:`print_line`."""
    with _writing():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise OutputClosedError from None
    except OSError as error:  # such as a full disk, whose error has no name of a file
        raise OSError(error.errno, error.strerror, "standard output") from None


def open_closed_streams() -> None:
    """Discard what is written to a stream that the caller closed (``>&-``).

    Else the next file that is opened gets its number, and what a library prints there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the least number that is free
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)


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
    """Print a table that fits the terminal (see table.py); if stdout is none, a line for each row.

    The columns in *right* are numbers, and so are those of ``int`` cells, also with None between.
    """
    from .table import table_lines  # commands that print JSON do without rich

    values = list(rows)
    by_column = zip(columns, zip(*values, strict=True), strict=bool(values))
    numbers = [name for name, column in by_column if {*map(type, column)} - {NoneType} == {int}]
    cells = [["-" if cell is None else str(cell) for cell in row] for row in values]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table_lines(columns, cells, (*right, *numbers), width):
        print_line(line)


def table_of(
    records: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    keys: Mapping[str, str] | None = None,
) -> TextTable:
    """Return a table of records; *keys* are those that are not named as their column."""
    shown = [(keys or {}).get(column, column) for column in columns]
    return TextTable(columns, ([record[key] for key in shown] for record in records))


def progress(text: str) -> None:
    """Print one line of progress on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def as_time(time_ms: int | None, *, exact: bool = False) -> str | None:
    """Return a local time, to the second or, if *exact*, to the millisecond."""
    if time_ms is None:
        return None
    try:
        when = f"{datetime.fromtimestamp(time_ms // 1000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"  # no year that a calendar has
    return f"{when}.{time_ms % 1000:03d}" if exact else when


class OutputReader:
    """The process that reads stdout; to be created before the first line is printed.

    Where stdout is a pipe, a written line stays in the pipe until its reader asks for it, and is
    lost when the reader ends before. So the pipe is made as small as possible, and a caller that
    must know waits after each line until the pipe is empty. Terminals, files and sockets have what
    was written. The limit: a line counts once its reader has read it, whatever it then does.
    """

    def __init__(self) -> None:
        self._pipe = _pipe_of_stdout()
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # it holds more already: then it is looked at
                fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def has_read(self, ended: threading.Event) -> bool:
        """Wait until the reader has read everything; return False if *ended* is set before.

        Raises:
            OutputClosedError: the reader closed stdout, and did not read all of it.
        """
        if self._pipe is None:
            return True
        poller = select.poll()
        poller.register(self._pipe, select.POLLOUT)
        while _unread(self._pipe):
            if ended.is_set():
                return False
            events = poller.poll(_LOOK_MS)
            if events and _unread(self._pipe):
                if events[0][1] & select.POLLERR:
                    raise OutputClosedError
                time.sleep(_PAUSE_S)  # a larger pipe has room before it is empty
        return True


def _pipe_of_stdout() -> int | None:
    try:
        number = sys.stdout.fileno()
    except (io.UnsupportedOperation, ValueError):
        return None  # no file, or a closed one
    return number if stat.S_ISFIFO(os.fstat(number).st_mode) else None


def _unread(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
