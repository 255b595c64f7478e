"""The streams of a member, one a queue: matching messages, from wherever the member gets them.

A member on the shards' node maps their files (queue_stream.py). A member on another node fetches
from there (messaging/remote/fetched_streams.py).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from rocketray.filters.counters import FilterCounters
from rocketray.groups.filter_plan import QueuePart
from rocketray.store.reading.record_spans import EntryColumns, RecordReader


class QueueBounds(NamedTuple):
    """The first offset of a queue that still exists, and the end that readers may see."""

    minimum: int
    end: int


class TakenMatches(NamedTuple):
    """The matches of the filter, and the offset to commit after them.

    ``missed`` of them were removed since, ``collisions`` had another tag with the same hash.
    """

    entries: EntryColumns
    reader: RecordReader
    next_queue_offset: int
    missed: int = 0
    collisions: int = 0


class MemberStream(Protocol):
    """One queue that a member reads; for its polling thread, except ``counters``."""

    queue_id: int
    next_queue_offset: int
    """The offset up to which matches were taken."""

    @property
    def is_attached(self) -> bool:
        """Whether matches arrive; after ``read_on`` the stream may have to be attached again."""

    @property
    def part(self) -> QueuePart:
        """The subscription that the queue is read with, and the offset to stop at."""

    @property
    def first_error(self) -> int | None:
        """The first message on which SQL92 failed, if this process has to log it."""

    def attach(self) -> None:
        """Have matches arrive; raises if the filter does not compile, or is not available."""

    def visible(self) -> int:
        """Return the end of the queue, as far as this process knows it."""

    def read_on(self, part: QueuePart) -> None:
        """Continue with another part behind what was taken."""

    def take_matches(self, max_count: int) -> TakenMatches | None:
        """Take matches that have arrived; None if the queue did not move.

        After an error the same matches are tried again by the next call; none is skipped.

        Raises:
            FilterError: the stream failed, and all earlier matches were taken.
            StreamError: a record is damaged. OSError: the log cannot be read.
        """

    def let_go(self, finished: int) -> None:
        """Release removed messages below *finished*."""

    def counters(self) -> FilterCounters:
        """Return the counters of the filter since the stream was opened."""

    def stop(self) -> None:
        """Let no more matches arrive; those that were taken stay readable."""

    def close(self) -> None:
        """Release all that is left."""


class MemberBell(Protocol):
    """Rung when matches arrive; a polling thread sleeps on it."""

    def count(self) -> int:
        """Return the number of rings; read it before looking for matches."""

    def ring(self) -> None:
        """Wake the sleeper, or keep it from falling asleep."""

    def wait(self, seen: int, timeout_s: float) -> None:
        """Sleep until it was rung since :meth:`count` returned *seen*, or the time is over."""


class StreamSource(Protocol):
    """The streams of one member."""

    @property
    def bell(self) -> MemberBell:
        """Rung when a stream has matches, or may raise."""

    def start(self) -> None:
        """Start the threads that it needs, if any."""

    def bounds(self, queue_id: int) -> QueueBounds:
        """Return the bounds of a queue; raise ``ShardUnavailableError`` if it does not exist."""

    def is_left_behind(self) -> bool:
        """Return whether the node was started again since, so :meth:`follow` has to be called."""

    def follow(self, moves: int) -> frozenset[int]:
        """Return the queues to open again; *moves* counts how often any was moved."""

    def open(self, queue_id: int, part: QueuePart, start: int) -> MemberStream:
        """Return a stream that begins at *start*, and is not attached yet."""

    def close(self) -> None:
        """Release everything; all streams are closed."""
