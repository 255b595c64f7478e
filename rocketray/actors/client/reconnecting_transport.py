"""The transport of a program over a node's own socket: it continues when the node is started again.

A program calls from several threads, and a call that waits must not hold up a heartbeat: each call
under way has a connection of its own. While the node's process does not answer, calls raise
:class:`ShardUnavailableError`, as over Ray; each tries to connect again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Concatenate, TypeVar

from rocketray.errors import NodeNotRunningError, ShardUnavailableError, StreamError
from rocketray.runtime.calls.endpoint import (
    CALL_TIMEOUT_S,
    Arguments,
    Endpoint,
    InterfaceT,
    ResultT,
    run_in_thread,
)

from .local_transport import LocalTransport, open_local
from .own_node import ToldTransport

_FoundT = TypeVar("_FoundT")
_SILENCE_MAX_S = CALL_TIMEOUT_S + 5.0  # the node's process waits less for an actor


class ReconnectingTransport(ToldTransport):
    """Connections to the process of the node on *data*; safe to use from several threads."""

    @classmethod
    def open(cls, data: Path) -> ReconnectingTransport | None:
        """Return the transport to the node on *data*; None if this process has to join Ray for it.

        Raises:
            ActorError: the node is of another release.
        """
        first = open_local(data, _SILENCE_MAX_S)
        return None if first is None else cls(data, first)

    def __init__(self, data: Path, first: LocalTransport) -> None:
        super().__init__(first.coordinator_data)
        self.cluster = first.cluster
        self._data = data
        self._lock = threading.Lock()
        # One is kept, for the heartbeats; calls that overlap with them open others, and end them.
        self._idle: LocalTransport | None = None
        self._is_closed = False
        self._keep(first)

    def call(self, endpoint: Endpoint[Any], method: str, *arguments: Any, **options: Any) -> Any:
        return self._ask(lambda link: link.call(endpoint, method, *arguments, **options))

    def call_each(
        self,
        endpoints: Sequence[Endpoint[InterfaceT]],
        method: Callable[Concatenate[InterfaceT, Arguments], ResultT],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> list[ResultT]:
        return self._ask(lambda link: link.call_each(endpoints, method, *arguments, **options))

    def in_background(self, run: Callable[[], None], /) -> None:
        run_in_thread(run)

    def is_local(self, disk: str) -> bool:
        return self._ask(lambda link: link.is_local(disk))

    def has_files(self, disk: str) -> bool:
        return self.is_local(disk)

    def close(self) -> None:
        """End the connections; one with a call under way ends after it."""
        with self._lock:
            self._is_closed = True
        self._drop_idle()

    def _ask(self, question: Callable[[LocalTransport], _FoundT]) -> _FoundT:
        self.check_left()
        link = self._take()
        try:
            found = question(link)
        except NodeNotRunningError as error:
            link.close()
            self._drop_idle()  # it is of the same process
            raise self._unavailable() from error
        except StreamError:  # of the object that was called
            self._keep(link)
            raise
        except BaseException:
            link.close()  # it may have an answer that was not read
            raise
        self._keep(link)
        return found

    def _take(self) -> LocalTransport:
        with self._lock:
            link, self._idle = self._idle, None
        link = link or open_local(self._data, _SILENCE_MAX_S)
        if link is None:
            raise self._unavailable()
        return link

    def _keep(self, link: LocalTransport) -> None:
        with self._lock:
            is_spare = self._is_closed or self._idle is not None
            if not is_spare:
                self._idle = link
        if is_spare:
            link.close()

    def _drop_idle(self) -> None:
        with self._lock:
            link, self._idle = self._idle, None
        if link is not None:
            link.close()

    def _unavailable(self) -> ShardUnavailableError:
        reason = (
            "its process does not answer; if it has ended, start it again: rocketray start --data "
            f"{self._data}"
        )
        return ShardUnavailableError(f"the node on {self._data}", reason)
