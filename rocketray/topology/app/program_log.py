"""The log of a process that runs an app: on stderr, unless the program configured logging itself.

``App.main`` and the hosts of ``rocketray up`` call this. Lines of rocketray are shown from INFO on,
so that a start says what it waits for; those of other libraries from WARNING on. Two kinds of
mode's lines, which it logs under our modules' names, are left out:

- the start and stop of each of its services;
- a timer of the app's own, such as the one that commits, took longer than its interval: on a busy
  machine this happens often, and the timer runs again when it is done. A user's timer is named.

Mode also gives the loggers of modules with services a handler that drops lines without a listener.
``App`` removes it, so that without configured logging warnings go to stderr, as in Python.
"""

from __future__ import annotations

import logging

__all__ = ["show_log", "show_warnings"]

_OURS = "rocketray."
_TIMERS = "mode.timers"
_OWN_TIMERS = frozenset(  # the names of the user's have a dot, or are the user's choice
    {"commit", "global tables", "livelock", "Monitor.sampler", "Recovery.stats", "routes"}
    | {"table_cleanup"}
)
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def show_log() -> None:
    """Show log lines; without effect where the root logger has a handler already."""
    if not logging.getLogger().handlers:
        logging.basicConfig(format=_FORMAT)
        logging.getLogger("rocketray").setLevel(logging.INFO)
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_ours)


def show_warnings() -> None:
    """Show warnings of our modules where the program configured no logging."""
    for name in [name for name in logging.root.manager.loggerDict if name.startswith(_OURS)]:
        one = logging.getLogger(name)
        for handler in [each for each in one.handlers if isinstance(each, logging.NullHandler)]:
            one.removeHandler(handler)


def _is_ours(record: logging.LogRecord) -> bool:
    if record.name == _TIMERS and isinstance(record.args, tuple):
        return not _OWN_TIMERS.intersection(map(str, record.args[:1]))
    return record.levelno > logging.INFO or not record.getMessage().startswith("[^")
