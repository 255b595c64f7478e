"""Questions to a node over a few connections that are opened again when the node was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, Full, LifoQueue
from typing import Generic, TypeVar

from rocketray.errors import NodeNotRunningError, StreamError
from rocketray.messaging.api.node_client import NodeClient

from .connected_client import LocalClient
from .local_transport import open_local

_T = TypeVar("_T")
_NodeT = TypeVar("_NodeT", bound=NodeClient)
_IDLE_MAX = 4  # connections that are kept; more questions at once open, and close, others


def open_node(data: Path) -> LocalClient:
    """Return a client of the node on *data*, without Ray.

    Raises:
        NodeNotRunningError: no node of this user runs there.
    """
    transport = open_local(data.resolve())
    if transport is None:
        raise NodeNotRunningError(
            f"no node runs on {data}; start one with: rocketray start --data {data}"
        )
    return LocalClient(transport)


class NodeConnections(Generic[_NodeT]):
    """The connections to one node; any thread may ask. See ``AskNode``."""

    def __init__(self, open_one: Callable[[], _NodeT]) -> None:
        """Take what opens a connection; the first question calls it."""
        self._open = open_one
        self._idle: LifoQueue[_NodeT] = LifoQueue(_IDLE_MAX)

    def ask(self, question: Callable[[_NodeT], _T], /) -> _T:
        """Return what *question* returns of the node; raise what it raises.

        After ``NodeNotRunningError`` the next call connects again.
        """
        try:
            node = self._idle.get_nowait()
        except Empty:
            node = self._open()
        try:
            found = question(node)
        except NodeNotRunningError:
            _close(node)
            self.close()
            raise
        except StreamError:  # of the object that was called
            self._keep(node)
            raise
        except BaseException:
            _close(node)  # it may have an answer that was not read
            raise
        self._keep(node)
        return found

    def close(self) -> None:
        """End the connections that nothing uses."""
        with suppress(Empty):
            while True:
                _close(self._idle.get_nowait())

    def _keep(self, node: _NodeT) -> None:
        try:
            self._idle.put_nowait(node)  # asking first whether it is full would be a race
        except Full:
            _close(node)


def _close(node: NodeClient) -> None:
    if isinstance(node, LocalClient):
        node.close()
