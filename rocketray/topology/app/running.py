"""Running an app until it is told to stop, or crashes; and the log of a process that runs an app.

The log goes to stderr, unless the program configured logging itself. ``App.main`` and the hosts of
``rocketray up`` call this. Lines of rocketray are shown from INFO on, so that a start says what it
waits for; those of other libraries from WARNING on. Two kinds of mode's lines, which it logs under
our modules' names, are left out:

- the start and stop of each of its services;
- a timer of the app's own, such as the one that commits, took longer than its interval: on a busy
  machine this happens often, and the timer runs again when it is done. A user's timer is named.

Mode also gives the loggers of modules with services a handler that drops lines without a listener.
``App`` removes it, so that without configured logging warnings go to stderr, as in Python.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Protocol

import faust

__all__ = ["Companion", "run_until", "run_until_signalled", "show_log", "show_warnings"]

logger = logging.getLogger(__name__)
_OURS = "rocketray."
_TIMERS = "mode.timers"
_OWN_TIMERS = frozenset(  # the names of the user's have a dot, or are the user's choice
    {"commit", "global tables", "livelock", "Monitor.sampler", "Recovery.stats", "routes"}
    | {"table_cleanup"}
)
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


async def run_until(app: faust.App, asked: asyncio.Event) -> None:
    """Wait until *asked* is set or *app* crashed, whichever is first."""
    waits = [asyncio.create_task(asked.wait()), asyncio.create_task(app.wait_until_stopped())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


class Companion(Protocol):
    """What runs beside an app's agents, in threads of its own: its sinks."""

    error: BaseException | None
    """Why it ended, if it ended by itself."""

    def start(self, failed: Callable[[], object]) -> None:
        """Start it; *failed* is called in one of its threads when it has ended by an error."""

    def stop(self) -> None:
        """End it; return when it has ended."""


async def run_until_signalled(app: faust.App, beside: Companion | None = None) -> None:
    """Start *app* and stop it at SIGINT or SIGTERM; raise the error that crashed it, if any.

    What runs *beside* it starts and stops with it, and stops it when it fails; it has the error.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    await app.start()
    try:
        if beside is not None:
            beside.start(lambda: loop.call_soon_threadsafe(asked.set))
        await run_until(app, asked)
    finally:
        logger.info("app %s is stopping", app.conf.id)
        ending = None if beside is None else asyncio.ensure_future(asyncio.to_thread(beside.stop))
        await app.stop()
        if ending is not None:
            await ending
    if app.crash_reason is not None:
        raise app.crash_reason


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
