"""Calls from the console's pages to the node: in threads, over a few connections.

A node that ended is found again when it was started again: the next call connects again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rocketray.actors.client.node_connections import NodeConnections
from rocketray.messaging.api.node_client import NodeClient

_T = TypeVar("_T")
_THREADS = 16  # a call to a disk that does not answer holds one for seconds


class ConsoleLink:
    """The connections; all methods but :attr:`ask` belong to the event loop's thread."""

    def __init__(self, open_one: Callable[[], NodeClient]) -> None:
        self._connections = NodeConnections(open_one)
        self.ask = self._connections.ask
        """Ask in the caller's thread."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="console")

    async def answer(self, question: Callable[[NodeClient], _T]) -> _T:
        """Return what *question* returns of the node; it runs in a thread, and may block."""
        return await self.run(lambda: self.ask(question))

    async def run(self, work: Callable[[], _T]) -> _T:
        """Return what *work* returns; it runs in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """End the connections, and wait for the calls that run."""
        self._threads.shutdown(cancel_futures=True)
        self._connections.close()
