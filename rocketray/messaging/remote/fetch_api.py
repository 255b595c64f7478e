"""The calls and values between members on other machines and the gateway of a disk.

They are calls of the disk's fetch service: see fetch_calls.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rocketray.errors import StreamError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.groups.filter_plan import QueuePart
from rocketray.messaging.consumers.stream_source import QueueBounds

POLL_MAX_S = 5.0
"""How long a fetch waits for messages; RocketMQ's pulls wait 15 s.

A member notices a machine that vanished only when its call ends: after these 5 s, and 10 s more
that the link allows for an answer on its way (flight_link.py).
"""


class QueueFetch(NamedTuple):
    """What to fetch of a queue: matches of ``part`` from ``position`` on, up to ``credit_bytes``.

    Without credit nothing is fetched, and the stream is kept for the next fetch.
    """

    part: QueuePart
    position: int
    credit_bytes: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request of a member for all queues that it reads.

    ``session`` is the member's, ``number`` grows with each of its requests.
    """

    session: str
    number: int
    group: str
    topic: str
    queues: Mapping[int, QueueFetch]


@dataclass(frozen=True, slots=True)
class FetchedQueue:
    """The part of a reply about one queue.

    ``frames``: packed records, in order.
    ``next_position``: where the next fetch continues; it may be beyond the frames.
    ``end``: the end of the queue that readers may see.
    ``stream``: the name of the filter's stream, and ``counters`` its counters since it began; empty
    if the queue has no stream, and ``end`` is not known then.
    ``error``: why nothing came, or nothing after the frames; the next fetch tries it again.
    """

    frames: Sequence[bytes | memoryview]
    next_position: int
    end: int = 0
    stream: str = ""
    counters: FilterCounters = NO_COUNTERS
    error: StreamError | OSError | None = None


class FetchApi(Protocol):
    """The calls of a node's gateway; see ``FetchSessions``."""

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        """Return the bounds of a queue; raise ``ShardUnavailableError`` if it does not exist."""

    def attach(self, fetch: Fetch) -> None:
        """Have the filter begin with the queues of *fetch*, beside those of earlier ones."""

    def fetch(self, fetch: Fetch, timeout_s: float) -> Mapping[int, FetchedQueue]:
        """Return matches by queue, as soon as there are any."""

    def wake(self, session: str, number: int) -> None:
        """End the wait of fetches up to that number."""

    def leave(self, session: str) -> None:
        """Drop a session at once, with its streams and rings."""
