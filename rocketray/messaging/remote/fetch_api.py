"""The calls and values between members on other machines and the gateway of a disk.

They are calls of the disk's fetch service (flight_calls.py), in the forms of their types. The types
declare the limits of what members send.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Annotated, NamedTuple, Protocol

from rocketray.base.limits import Limit, SentGroup, SentOffset, SentQueueId, SentTopic
from rocketray.broker.fetching.sent_filters import SentFilter
from rocketray.errors import ConfigError, StreamError
from rocketray.filters.counters import NO_COUNTERS, FilterCounters
from rocketray.filters.subscription import Subscription
from rocketray.groups.filter_plan import QueuePart
from rocketray.messaging.consumers.stream_source import QueueBounds
from rocketray.runtime.calls.endpoint import GATEWAY_NAME, Endpoint, bulk

POLL_MAX_S = 5.0
"""How long a fetch waits for messages; RocketMQ's pulls wait 15 s.

A member notices a machine that vanished only when its call ends: after these 5 s, and 10 s more
that the link allows for an answer on its way (flight_link.py).
"""
# One, or two while the group changes its filter; each is parsed before anything else is checked.
_FILTERS_MAX = 16
_SESSION = re.compile(r"[0-9a-f]{32}", re.ASCII)  # as ``uuid4().hex``


def _check_session(name: str) -> str:
    if _SESSION.fullmatch(name) is None:
        raise ConfigError(f"this is no name of a session: {name!r:.80}")
    return name


SentSession = Annotated[str, _check_session]
PollSeconds = Annotated[float, Limit(POLL_MAX_S)]


class QueueFetch(NamedTuple):
    """What to fetch of a queue: matches of ``part`` from ``position`` on, up to ``credit_bytes``.

    Without credit nothing is fetched, and the stream is kept for the next fetch.
    """

    part: QueuePart
    position: int
    credit_bytes: int


class FilteredQueues(NamedTuple):
    """The queues of a fetch that are read with the same filter, which is sent once; in columns."""

    subscription: SentFilter
    queue_ids: Sequence[SentQueueId]
    stops: Sequence[SentOffset | None]
    positions: Sequence[SentOffset]
    credits_bytes: Sequence[SentOffset]


@dataclass(frozen=True, slots=True)
class Fetch:
    """One request of a member for all queues that it reads; see :meth:`of`.

    ``session`` is the member's, ``number`` grows with each of its requests.
    """

    session: SentSession
    number: SentOffset
    group: SentGroup
    topic: SentTopic
    by_filter: Annotated[Sequence[FilteredQueues], Limit(_FILTERS_MAX)]
    queues: Mapping[int, QueueFetch] = field(init=False)
    known: InitVar[Mapping[int, QueueFetch] | None] = None

    def __post_init__(self, known: Mapping[int, QueueFetch] | None) -> None:
        queues = known or {
            queue_id: QueueFetch(QueuePart(one.subscription, stop), position, credit)
            for one in self.by_filter
            for queue_id, stop, position, credit in zip(*one[1:], strict=True)
        }
        object.__setattr__(self, "queues", queues)  # frozen from here on

    @classmethod
    def of(
        cls, session: str, number: int, group: str, topic: str, queues: Mapping[int, QueueFetch]
    ) -> Fetch:
        rows: dict[Subscription, list[tuple[int, int | None, int, int]]] = {}
        last = None  # nearly always the same object, whose hash takes longer than all else here
        for queue_id, (part, position, credit_bytes) in queues.items():
            if part.subscription is not last:
                last = part.subscription
                of_filter = rows.setdefault(last, [])
            of_filter.append((queue_id, part.stop, position, credit_bytes))
        by_filter = [
            FilteredQueues(one, *map(list, zip(*each, strict=True))) for one, each in rows.items()
        ]
        return cls(session, number, group, topic, by_filter, queues)


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

    frames: Sequence[memoryview]
    next_position: SentOffset
    end: SentOffset = 0
    stream: str = ""
    counters: FilterCounters = NO_COUNTERS
    error: StreamError | OSError | None = None


class FetchApi(Protocol):
    """The calls of a node's gateway; see ``FetchSessions``."""

    def bounds(self, topic: SentTopic, queue_id: SentQueueId) -> QueueBounds:
        """Return the bounds of a queue; raise ``ShardUnavailableError`` if it does not exist."""

    def attach(self, fetch: Fetch) -> None:
        """Have the filter begin with the queues of *fetch*, beside those of earlier ones."""

    @bulk(POLL_MAX_S)
    def fetch(self, fetch: Fetch, timeout_s: PollSeconds) -> Mapping[int, FetchedQueue]:
        """Return matches by queue, as soon as there are any."""

    def wake(self, session: SentSession, number: SentOffset) -> None:
        """End the wait of fetches up to that number."""

    def leave(self, session: SentSession) -> None:
        """Drop a session at once, with its streams and rings."""


FETCHES: Endpoint[FetchApi] = Endpoint(GATEWAY_NAME, FetchApi)
"""The fetches of a gateway; the link to its fetch service says of which disk."""
