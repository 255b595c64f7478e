"""The log of a process that runs an app: on stderr, unless the program set logging up itself.

``App.main`` and the hosts of ``rocketray up`` call this. Lines of rocketray's own come from INFO on,
so that a start says what it waits for; those of other libraries from WARNING on. That mode starts
and stops each of its services is left out: it logs that under our modules' names. So is that one
of the app's own timers, such as the one that commits, took longer than its interval: it comes again
when it is done, on a busy machine often. A timer of the user's is named. Mode also gives
the loggers of modules with services a handler that drops what nobody listens to: ``App`` takes it
away, so that warnings are on stderr where no logging is set up, as Python has it.
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
    """Have log lines come out; without effect where the root logger has a handler already."""
    if not logging.getLogger().handlers:
        logging.basicConfig(format=_FORMAT)
        logging.getLogger("rocketray").setLevel(logging.INFO)
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_ours)


def show_warnings() -> None:
    """Have warnings of our modules come out where a program set no logging up."""
    for name in [name for name in logging.root.manager.loggerDict if name.startswith(_OURS)]:
        one = logging.getLogger(name)
        for handler in [each for each in one.handlers if isinstance(each, logging.NullHandler)]:
            one.removeHandler(handler)


def _is_ours(record: logging.LogRecord) -> bool:
    if record.name == _TIMERS and isinstance(record.args, tuple):
        return not _OWN_TIMERS.intersection(map(str, record.args[:1]))
    return record.levelno > logging.INFO or not record.getMessage().startswith("[^")
