"""The log of a process that runs an app.

It goes to stderr, unless the program configured logging itself. ``App.main`` and the hosts of
``rocketray up`` call this. Lines of rocketray are shown from INFO on, so that a start says what it
waits for; those of other libraries from WARNING on. Two kinds of mode's lines, which it logs under
our modules' names, are left out:

- the start and stop of each of its services;
- a timer of the app's own, such as the one that commits, took longer than its interval: on a busy
  machine this happens often, and the timer runs again when it is done. A user's timer is named.

Each line names the message that a handler has, if one has (process_logs/log_line.py). So do the
lines that handlers print, in a host and in the log file of ``App.main``; in a terminal they are as
they were printed.

Mode also gives the loggers of modules with services a handler that drops lines without a listener.
``App`` removes it, so that without configured logging warnings go to stderr, as in Python.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from pathlib import Path

from faust.agents.agent import _current_agent
from faust.streams import _current_event

from rocketray.runtime.process_logs.log_line import PRINT, MessagePlace, formatter, place_extra
from rocketray.runtime.process_logs.log_output import (
    PrintedLines,
    limit_log,
    log_in_file,
    note_own_log,
)
from rocketray.topology.delivery.delivery import place_of

from .stream import Stream

_OURS = "rocketray."
_TIMERS = "mode.timers"
_OWN_TIMERS = frozenset(  # the names of the user's have a dot, or are the user's choice
    {"commit", "global tables", "livelock", "Monitor.sampler", "Recovery.stats", "routes"}
    | {"table_cleanup"}
)
_PRINTED = 25  # between INFO and WARNING
_EARLY_LINES = 10_000  # from this number on, lines go to the file at once, if there is one


def show_log() -> None:
    """Show log lines; without effect where the root logger has a handler already."""
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(formatter())
        _select(handler)
        logging.getLogger().addHandler(handler)
        logging.getLogger("rocketray").setLevel(logging.INFO)


def show_warnings() -> None:
    """Show warnings of our modules where the program configured no logging."""
    for name in [name for name in logging.root.manager.loggerDict if name.startswith(_OURS)]:
        one = logging.getLogger(name)
        for handler in [each for each in one.handlers if isinstance(each, logging.NullHandler)]:
            one.removeHandler(handler)


def show_worker_log(data: str | None, name: str | None, files: tuple[str, ...]) -> None:
    """Show the log of a host, with what its handlers print; note it on *data*, limit its *files*.

    *name* is the host's. Without files this is not a process of Ray's, whose output stays.
    """
    show_log()
    if files:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(formatter())
        log_prints(handler, goes_through=False)
        limit_log(files)
        if data is not None:
            note_worker_log(Path(data), name, files)


def note_worker_log(data: Path, name: str | None, files: tuple[str, ...]) -> None:
    """Note on *data* where a host logs, for ``rocketray logs``."""
    if files and name is not None:
        note_own_log(data, name.rpartition("/")[2], files)


class _EarlyLines(MemoryHandler):
    """Keeps lines for a file that may never come: a node elsewhere, or no room for it."""

    def flush(self) -> None:
        """Write them; without a file, drop as many as it may keep: the terminal has them."""
        super().flush()
        self.buffer.clear()


class AppLog:
    """The log file of ``python app.py``: what it logs and prints, also before a node is ready."""

    def __init__(self) -> None:
        self._memory = _EarlyLines(_EARLY_LINES, logging.CRITICAL + 1, flushOnClose=False)
        _select(self._memory)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Log to the file inside the block, from :meth:`begin` on, and what came before it."""
        stdout = sys.stdout
        logging.getLogger().addHandler(self._memory)
        log_prints(self._memory, goes_through=True)
        try:
            yield
        finally:
            sys.stdout = stdout
            logging.getLogger().removeHandler(self._memory)
            target = self._memory.target
            self._memory.close()
            if target is not None:
                target.close()

    def begin(self, data: Path, app: str) -> Path | None:
        """Log to a file on *data* from now on; return it, or None if that is impossible."""
        handler = log_in_file(data, f"app:{app}")
        if handler is None:
            return None
        self._memory.setTarget(handler)
        self._memory.flush()
        self._memory.capacity = 1  # from now on each line is written at once
        return Path(handler.baseFilename)


def log_prints(handler: logging.Handler, *, goes_through: bool) -> None:
    """Hand each line that is printed from now on to *handler*, with agent and message in hand."""

    def emit(line: str) -> None:
        agent = _current_agent.get(None)
        name = "stdout" if agent is None else re.sub(r"[\s\[]", "_", agent.name) or "stdout"
        record = logging.LogRecord(name, _PRINTED, "", 0, line, None, None)
        record.levelname = PRINT
        _add_place(record)
        handler.handle(record)

    sys.stdout = PrintedLines(emit, sys.stdout, goes_through=goes_through)


def place_in_hand() -> MessagePlace | None:
    """Return the message, or the list of one queue, that the handler of this task has."""
    stream = getattr(_current_event.get(None), "__self__", None)
    inbox = stream.inbox if isinstance(stream, Stream) else None
    runs = () if inbox is None else inbox.hand().runs
    return place_of(*runs[0]) if len(runs) == 1 else None


def _select(handler: logging.Handler) -> None:
    # The order matters: a line that is left out needs no place.
    handler.addFilter(_is_ours)
    handler.addFilter(_add_place)


def _add_place(record: logging.LogRecord) -> bool:
    if not hasattr(record, "place"):
        vars(record).update(place_extra(place_in_hand()))
    return True


def _is_ours(record: logging.LogRecord) -> bool:
    if record.name == _TIMERS and isinstance(record.args, tuple):
        return not _OWN_TIMERS.intersection(map(str, record.args[:1]))
    return record.levelno > logging.INFO or not record.getMessage().startswith("[^")
