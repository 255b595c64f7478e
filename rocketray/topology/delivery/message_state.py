"""The state of single messages of a delivery: acknowledged, being returned, failing.

Everything else that a delivery knows of its messages is one cursor. Used on the app's loop only.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketray.actors.groups.failing import FailingMessage

__all__ = ["Acknowledgements", "Attempts"]


class Acknowledgements:
    """Messages of the run ``[start, stop)`` of a batch that are finished out of order, or are not.

    A message that is returned to the node is not finished before the node has stored it. In manual
    mode, after :meth:`require`, a message is finished when it is acknowledged, and not when the
    handler passes it.
    """

    __slots__ = ("_acked", "_returning", "_start", "_stop")

    def __init__(self, start: int, stop: int) -> None:
        self._start, self._stop = start, stop
        self._acked: bytearray | None = None  # in manual mode, one byte a message
        self._returning: set[int] = set()

    @property
    def are_required(self) -> bool:
        """Whether messages are finished by acknowledgements."""
        return self._acked is not None

    @property
    def has_any(self) -> bool:
        """Whether a message was acknowledged."""
        return self._acked is not None and 1 in self._acked

    @property
    def has_returning(self) -> bool:
        """Whether messages are being returned to the node."""
        return bool(self._returning)

    def require(self, cursor: int) -> None:
        """Finish messages from now on when they are acknowledged; those before *cursor* are."""
        if self._acked is None:
            self._acked = bytearray(self._stop - self._start)
            self._acked[: cursor - self._start] = b"\x01" * (cursor - self._start)

    def acknowledge(self, index: int) -> None:
        """Finish the message at *index*; without effect unless acknowledgements are required."""
        if self._acked is not None:
            self._acked[index - self._start] = 1

    def has(self, index: int) -> bool:
        """Return whether the message at *index* was acknowledged, so it is not delivered again."""
        return self._acked is not None and self._acked[index - self._start] == 1

    def missing(self, cursor: int) -> Iterator[int]:
        """Yield the messages before *cursor* that are required and not acknowledged yet."""
        if self._acked is not None:
            index = self._acked.find(0, 0, cursor - self._start)
            while index >= 0:
                yield self._start + index
                index = self._acked.find(0, index + 1, cursor - self._start)

    def begin_return(self, index: int) -> None:
        """Begin to return the message at *index*; it is unfinished until :meth:`returned`."""
        self.acknowledge(index)
        self._returning.add(index)

    def returned(self, index: int) -> None:
        """Record that the node has stored the message at *index*."""
        self._returning.discard(index)

    def first_unfinished(self, cursor: int) -> int:
        """Return the first unfinished message, or the end of the run, of a run with *cursor*."""
        index = cursor
        if self._acked is not None:
            found = self._acked.find(0)
            index = self._stop if found < 0 else self._start + found
        return min((index, *self._returning))


class Attempts:
    """Consecutive failures of the message at the cursor, and whether its queue is held at it."""

    __slots__ = ("_at", "_failing", "count")

    def __init__(self) -> None:
        self.count = 0
        """The number of failures of the message that failed last."""
        self._at = -1
        self._failing: FailingMessage | None = None

    def note(self, cursor: int) -> int:
        """Count a failure of the message at *cursor*; return the number of consecutive ones."""
        self.count = self.count + 1 if self._at == cursor else 1
        self._at = cursor
        return self.count

    def hold(self, queue_offset: int, last_attempt: int | None, reason: str) -> None:
        """Hold the queue at the message, which is at *queue_offset* and failed for *reason*."""
        self._failing = FailingMessage(queue_offset, self.count, last_attempt, reason)

    def failing(self, cursor: int) -> FailingMessage | None:
        """Return the message at *cursor* if its queue is held at it."""
        return self._failing if self._at == cursor else None
