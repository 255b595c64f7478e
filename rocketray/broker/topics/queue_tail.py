"""One queue from an offset to its current end, for readers that must not miss a message.

A table is rebuilt from its changelog with it: everything from the minimum to the end, once, and
then new messages. If retention or compaction deletes messages ahead of the reader, it raises
:class:`OffsetOutOfRangeError`, where :class:`~.log_reader.LogReader` continues with the messages
that exist.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rocketray.errors import OffsetOutOfRangeError
from rocketray.message import StoredMessage

from .log_reader import LogReader


class Tail(Protocol):
    """A reader of one queue, which may not exist yet; for one thread at a time."""

    def minimum(self) -> int:
        """Return the first queue offset that still exists."""

    def end(self) -> int:
        """Return the queue offset behind the last message."""

    def read(self, start: int, max_count: int) -> list[StoredMessage]:
        """Return the messages from queue offset *start* on, at most *max_count*; [] at the end.

        Raises:
            OffsetOutOfRangeError: they are deleted by now; begin again at the minimum.
        """

    def close(self) -> None:
        """Release what it holds."""


class QueueTail:
    """The :class:`Tail` of a queue whose files are here."""

    def __init__(self, data: Path, topic: str, queue_id: int) -> None:
        self._queue = topic, queue_id
        self._log = LogReader(data)

    def minimum(self) -> int:
        return self._bounds()[0]

    def end(self) -> int:
        return self._bounds()[1]

    def read(self, start: int, max_count: int) -> list[StoredMessage]:
        if start >= self.end():
            return []
        found = self._log.read({self._queue: start}, max_count, 0).get(self._queue, [])
        if self.minimum() > start:
            topic, queue_id = self._queue
            raise OffsetOutOfRangeError(f"{topic}/{queue_id}", start, *self._bounds())
        return found

    def close(self) -> None:
        self._log.close()

    def _bounds(self) -> tuple[int, int]:
        try:
            return self._log.bounds(self._queue)
        except FileNotFoundError:
            return 0, 0  # the shard has never run
