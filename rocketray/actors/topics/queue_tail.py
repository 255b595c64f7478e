"""One queue from an offset to where it ends now, for readers that must not miss anything.

It is how a table is made again from its changelog: everything from the minimum to the end, once,
and then what comes. What retention or compaction deletes under the reader is told as
:class:`OffsetOutOfRangeError`, where :class:`~.log_reader.LogReader` goes on with what is there.
"""

from __future__ import annotations

from pathlib import Path

from rocketray.errors import OffsetOutOfRangeError
from rocketray.message import StoredMessage

from .log_reader import LogReader

__all__ = ["QueueTail"]


class QueueTail:
    """Reads queue *queue_id* of *topic*, which need not exist yet; for one thread at a time."""

    def __init__(self, data: Path, topic: str, queue_id: int) -> None:
        self._queue = topic, queue_id
        self._log = LogReader(data)

    def minimum(self) -> int:
        """The first queue offset that is still there."""
        return self._bounds()[0]

    def end(self) -> int:
        """The queue offset behind the last message."""
        return self._bounds()[1]

    def read(self, start: int, max_count: int) -> list[StoredMessage]:
        """The messages from queue offset *start* on, at most *max_count*; [] at the end.

        Raises:
            OffsetOutOfRangeError: they are deleted by now; begin again at the minimum.
        """
        if start >= self.end():
            return []
        found = self._log.read({self._queue: start}, max_count, 0).get(self._queue, [])
        if self.minimum() > start:
            topic, queue_id = self._queue
            raise OffsetOutOfRangeError(f"{topic}/{queue_id}", start, *self._bounds())
        return found

    def close(self) -> None:
        """Unmap everything."""
        self._log.close()

    def _bounds(self) -> tuple[int, int]:
        try:
            return self._log.bounds(self._queue)
        except FileNotFoundError:
            return 0, 0  # the shard has never run
