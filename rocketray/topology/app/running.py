"""Running an app until it is told to stop, or crashes."""

from __future__ import annotations

import asyncio
import logging
import signal

import faust

__all__ = ["run_until", "run_until_signalled"]

logger = logging.getLogger(__name__)


async def run_until(app: faust.App, asked: asyncio.Event) -> None:
    """Wait until *asked* is set or *app* crashed, whichever is first."""
    waits = [asyncio.create_task(asked.wait()), asyncio.create_task(app.wait_until_stopped())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def run_until_signalled(app: faust.App) -> None:
    """Start *app* and stop it at SIGINT or SIGTERM; raise the error that crashed it, if any."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    await app.start()
    try:
        await run_until(app, asked)
    finally:
        logger.info("app %s is stopping", app.conf.id)
        await app.stop()
    if app.crash_reason is not None:
        raise app.crash_reason
