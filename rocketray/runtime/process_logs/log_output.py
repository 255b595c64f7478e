"""What a process does with its log: where it is noted, and how large its files may become.

Ray redirects the output of its processes to files without a limit. Its own rotation puts a pipe
into the process, whose last lines are lost when the process ends at once, as at a crash. So the
files are exchanged here, below the descriptors 1 and 2: what is written meanwhile is in one of the
two, and what C++ prints follows.
"""

from __future__ import annotations

import io
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO

from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.paths import logs_of
from rocketray.runtime.periodic import start_periodic_task
from rocketray.runtime.processes import is_alive

from .log_index import LogEntry, note_log
from .log_line import formatter

LOG_MAX_BYTES = 32 << 20
"""Of one file; with the old ones, stdout and stderr of a process have 192 MiB at most."""
OLD_FILES = 2
_LOOK_S = 5.0  # a file exceeds its limit by what is logged meanwhile
_OWN_FILES = 5
"""Files of earlier processes of one part that are kept in the data directory."""
_LOG = logging.getLogger(__name__)


class PrintedLines(io.TextIOBase):
    """A stream in place of ``sys.stdout`` that hands on each complete line, a thread's own.

    With *goes_through*, what is printed is also written to the stream *like* it, which it replaces.
    What else a program may ask of its stdout, that stream answers.
    """

    def __init__(self, emit: Callable[[str], object], like: TextIO, *, goes_through: bool) -> None:
        super().__init__()
        self._emit, self._like, self._goes_through = emit, like, goes_through
        self._parts = threading.local()

    def write(self, text: str) -> int:
        """Write *text*; a line is handed on when its end is written."""
        if self._goes_through:
            self._like.write(text)
        *lines, rest = (getattr(self._parts, "text", "") + text).split("\n")
        self._parts.text = rest
        for line in lines:
            self._emit(line)
        return len(text)

    def flush(self) -> None:
        """Flush the stream below, unless it was closed: Python also asks as this one is freed."""
        if not self._like.closed:
            self._like.flush()

    def writable(self) -> bool:
        """Return True, which ``io.TextIOBase`` denies unless told otherwise."""
        return True

    def isatty(self) -> bool:
        """Whether a person sees what is printed."""
        return self._goes_through and self._like.isatty()

    def fileno(self) -> int:
        return self._like.fileno()

    @property
    def encoding(self) -> Any:  # type: ignore[override]
        return self._like.encoding

    def __getattr__(self, name: str) -> Any:
        """Return what a text stream need not have, such as ``buffer``: its bytes are no lines."""
        return getattr(self._like, name)


def show_in_worker(data: Path, part: str, files: Sequence[str]) -> None:
    """Log this actor's lines from INFO on, note where they are, and limit their files.

    *files* are those that Ray redirects the output to; without any, this process is no actor, and
    nothing changes.
    """
    if not files:
        return
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(formatter())
        logging.getLogger().addHandler(handler)
        logging.getLogger("rocketray").setLevel(logging.INFO)
    note_own_log(data, part, files)
    limit_log(files)


def note_own_log(data: Path, part: str, files: Sequence[str]) -> None:
    """Note on *data* where this process logs.

    If that fails, for example on a full disk, a warning says so.
    """
    entry = LogEntry(part, socket.gethostname(), os.getpid(), system_clock_ms(), tuple(files))
    try:
        note_log(data, entry)
    except OSError as error:
        _LOG.warning("rocketray logs will not find the log of %s: %s", part, error)


def limit_log(files: Sequence[str]) -> None:
    """Exchange the files of this process's output whenever they are too large, from now on."""
    descriptors = dict(zip((1, 2), map(Path, files), strict=False))
    start_periodic_task("rotating the log", _LOOK_S, threading.Event(), lambda: rotate(descriptors))


def log_in_file(data: Path, part: str, more: Sequence[str] = ()) -> RotatingFileHandler | None:
    """Return a handler that logs to a file of this process on *data*; None where it cannot.

    Its log is noted with *more* files, which others write. The oldest files of ended processes of
    the same part are removed.
    """
    path = own_log(data, part)
    directory = path.parent
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        _remove_old(directory, _begin_of(part))
        handler = RotatingFileHandler(
            path, maxBytes=LOG_MAX_BYTES, backupCount=OLD_FILES, encoding="utf-8"
        )
        path.chmod(0o600)
    except OSError as error:
        _LOG.warning("this process logs to no file: %s", error)
        return None
    handler.setFormatter(formatter())
    note_own_log(data, part, [str(path), *more])
    return handler


def own_log(data: Path, part: str) -> Path:
    """Return the file on *data* in which this process logs as that *part* of the node."""
    return logs_of(data) / f"{_begin_of(part)}.{os.getpid()}.log"


def _begin_of(part: str) -> str:
    return part.replace(":", "-")


def rotate(
    descriptors: dict[int, Path], max_bytes: int = LOG_MAX_BYTES, old_files: int = OLD_FILES
) -> None:
    """Give each descriptor whose file has *max_bytes* a new one; keep *old_files* of the others."""
    for descriptor, path in descriptors.items():
        found = os.fstat(descriptor)
        # Where the name is another file's by now, a rotation would move that one.
        if found.st_size < max_bytes or not _is_file(path, found):
            continue
        for number in range(old_files, 0, -1):
            before = path if number == 1 else old_name(path, number - 1)
            with suppress(FileNotFoundError):
                before.replace(old_name(path, number))
        new = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.dup2(new, descriptor)
        os.close(new)


def old_name(path: Path, number: int) -> Path:
    """Return the name of a file that was rotated *number* times: as Python's handlers have it."""
    return path.with_name(f"{path.name}.{number}")


def _is_file(path: Path, found: os.stat_result) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), found)
    return False


def _remove_old(directory: Path, begin: str) -> None:
    """Remove the files of ended processes, but for the newest."""
    found = [
        path
        for path in directory.glob(f"{begin}.*.log")
        if (number := path.name.split(".")[-2]).isdecimal() and not is_alive(int(number))
    ]
    found.sort(key=lambda path: path.stat().st_mtime)
    for path in found[: -_OWN_FILES + 1]:  # this process makes one more
        for each in (path, *(old_name(path, number + 1) for number in range(OLD_FILES))):
            each.unlink(missing_ok=True)
