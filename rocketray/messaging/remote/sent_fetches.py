"""The calls of a member to the gateway of a disk, as they are sent: see fetch_wire.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from rocketray.broker.fetching.flight_link import ResultT, SentBatch
from rocketray.groups.member_options import FetchCompression
from rocketray.messaging.consumers.stream_source import QueueBounds

from .fetch_api import Fetch, FetchedQueue
from .fetch_calls import ATTACH, BOUNDS, FETCH, LEAVE, WAKE
from .fetch_wire import (
    FetchRequest,
    bounds_from_json,
    queue_to_json,
    read_reply,
    wake_to_json,
)


class FetchLink(Protocol):
    """The way to a fetch service; see ``FlightLink``."""

    def act(self, name: str, request: bytes) -> bytes:
        """Call an action, and return its result."""

    def stream(
        self,
        name: str,
        request: bytes,
        timeout_s: float,
        read: Callable[[Iterable[SentBatch]], ResultT],
    ) -> ResultT:
        """Call a stream, and return the result of *read* for its batches."""


class SentFetches:
    """The calls of one member to one gateway; see ``FetchApi``. Any thread may call."""

    def __init__(self, link: FetchLink, compression: FetchCompression | None = None) -> None:
        """Send over *link*; *compression* is of the replies with messages."""
        self._link = link
        self._compression = compression

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        """See ``FetchApi.bounds``."""
        return bounds_from_json(self._link.act(BOUNDS, queue_to_json(topic, queue_id)))

    def attach(self, fetch: Fetch) -> None:
        """See ``FetchApi.attach``."""
        self._link.act(ATTACH, FetchRequest(fetch).to_json())

    def fetch(self, fetch: Fetch, timeout_s: float) -> dict[int, FetchedQueue]:
        """See ``FetchApi.fetch``."""
        request = FetchRequest(fetch, timeout_s, self._compression).to_json()
        return self._link.stream(FETCH, request, timeout_s, lambda sent: read_reply(fetch, sent))

    def wake(self, session: str, number: int) -> None:
        """See ``FetchApi.wake``."""
        self._link.act(WAKE, wake_to_json(session, number))

    def leave(self, session: str) -> None:
        """See ``FetchApi.leave``."""
        self._link.act(LEAVE, wake_to_json(session))
