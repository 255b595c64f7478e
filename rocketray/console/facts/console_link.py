"""Calls from the console's pages to the node: in threads, over a few connections.

A node that ended is found again when it was started again: the next call connects again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, LifoQueue
from typing import TypeVar

from rocketray.actors.api.node_client import NodeClient
from rocketray.actors.client.local_client import LocalClient
from rocketray.actors.client.local_transport import open_local
from rocketray.errors import NodeNotRunningError

__all__ = ["ConsoleLink", "open_node"]

_T = TypeVar("_T")
_THREADS = 16
_IDLE_MAX = 4


def open_node(data: Path) -> LocalClient:
    """Return a client of the node on *data*.

    Raises:
        NodeNotRunningError: no node of this user runs there.
    """
    transport = open_local(data.resolve())
    if transport is None:
        raise NodeNotRunningError(
            f"no node runs on {data}; start one with: rocketray start --data {data}"
        )
    return LocalClient(transport)


class ConsoleLink:
    """The connections; all methods but :meth:`ask` belong to the event loop's thread."""

    def __init__(self, open_one: Callable[[], NodeClient]) -> None:
        self._open = open_one
        self._idle: LifoQueue[NodeClient] = LifoQueue(_IDLE_MAX)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="console")

    async def answer(self, question: Callable[[NodeClient], _T]) -> _T:
        """Return what *question* returns of the node; it runs in a thread, and may block."""
        return await self.run(lambda: self.ask(question))

    async def run(self, work: Callable[[], _T]) -> _T:
        """Return what *work* returns; it runs in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def ask(self, question: Callable[[NodeClient], _T]) -> _T:
        """Do the same in the caller's thread; raises what the question raises."""
        try:
            node = self._idle.get_nowait()
        except Empty:
            node = self._open()
        try:
            found = question(node)
        except NodeNotRunningError:
            _close(node)
            self._drop_idle()
            raise
        except BaseException:
            self._keep(node)
            raise
        self._keep(node)
        return found

    def close(self) -> None:
        """End the connections, and wait for the calls that run."""
        self._threads.shutdown(cancel_futures=True)
        self._drop_idle()

    def _keep(self, node: NodeClient) -> None:
        if self._idle.full():
            _close(node)
        else:
            self._idle.put(node)

    def _drop_idle(self) -> None:
        while not self._idle.empty():
            _close(self._idle.get())


def _close(node: NodeClient) -> None:
    if isinstance(node, LocalClient):
        node.close()
