"""Running an app until it is told to stop, or crashes."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Protocol

import faust

from rocketray.runtime.waiting_log import logged_wait

logger = logging.getLogger(__name__)


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
        """End it; return when it has ended, or has an error because it does not end."""


async def run_until_signalled(app: faust.App, beside: Companion | None = None) -> None:
    """Start *app* and stop it at SIGINT or SIGTERM; raise the error that crashed it, if any.

    What runs *beside* it starts and stops with it, and stops it when it fails; it has the error.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    with logged_wait(f"app {app.conf.id} is starting, and its agents join their groups"):
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
