"""Listening: the console on an address, until it is to stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from aiohttp import web

from rocketray.errors import ConfigError

from .console_server import Console, ConsoleParts

_SHUTDOWN_S = 1.0  # a stop with open pages takes it: live streams do not end by themselves


async def serve(parts: ConsoleParts, ended: threading.Event, ready: Callable[[str], None]) -> None:
    """Serve until *ended* is set; *ready* is called with the link once the console listens.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    access = parts.access
    application = Console(parts).application()
    runner = web.AppRunner(
        application, access_log=None, shutdown_timeout=_SHUTDOWN_S, handler_cancellation=True
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, access.host, access.port)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(
                f"the console cannot listen on {access.host} port {access.port}: {error.strerror}; "
                "name another port with --port, or 0 for any free one"
            ) from None
        access.port = runner.addresses[0][1]
        ready(access.link())
        await asyncio.to_thread(ended.wait)
    finally:
        await runner.cleanup()
