"""Recovery of a part of a table from its changelog: all of it once, then later changes.

A part is read from the changelog's minimum to its end at the start of the read, so compaction
bounds the time. If files are deleted during the read, deletions of keys in them are lost. Then the
part is dropped, and read again from the new minimum.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rocketray.actors.topics.queue_tail import QueueTail
from rocketray.errors import OffsetOutOfRangeError
from rocketray.message import StoredMessage

__all__ = ["PartReader"]

logger = logging.getLogger(__name__)

READ_MAX_MESSAGES = 1000


class PartReader:
    """A reader of one queue of one changelog; for one task at a time."""

    def __init__(
        self,
        name: str,
        tail: QueueTail,
        *,
        apply: Callable[[list[StoredMessage]], Awaitable[None]],
        drop: Callable[[], None],
    ) -> None:
        """Create a reader; *apply* takes changes, *drop* empties the part of the table."""
        self._name = name
        self._tail = tail
        self._apply = apply
        self._drop = drop
        self.next_offset = 0
        """Everything below it was applied, or deleted by its owner before it was needed."""

    async def recover(self, persisted: int | None = None) -> int:
        """Read to the current end of the queue; return the number of changes.

        The part is empty, or holds what a store kept up to the change at offset *persisted*.
        """
        minimum = self._tail.minimum()
        self.next_offset = minimum if persisted is None else persisted + 1
        end = self._tail.end()
        if not minimum <= self.next_offset <= end:
            if persisted is not None:
                logger.warning(
                    "%s: the local copy ends at offset %d and the changelog has offsets %d to %d; "
                    "rebuilding it",
                    self._name, self.next_offset, minimum, end,
                )  # fmt: skip
            self._begin_again()
        return await self.catch_up()

    async def catch_up(self) -> int:
        """Apply the changes added until now; return their number."""
        end, count = self._tail.end(), 0
        while self.next_offset < end:
            room = min(READ_MAX_MESSAGES, end - self.next_offset)
            try:
                changes = await self._read(room)
            except OffsetOutOfRangeError:
                logger.info(
                    "%s: files were removed while they were read; reading again", self._name
                )
                self._begin_again()
                end = self._tail.end()  # compaction wrote the live changes again behind the old end
                continue
            await self._apply(changes)
            self.next_offset += len(changes)
            count += len(changes)
        return count

    async def _read(self, room: int) -> list[StoredMessage]:
        """Return the next changes; if cancelled, wait until the thread has released the log."""
        reading = asyncio.create_task(asyncio.to_thread(self._tail.read, self.next_offset, room))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            await asyncio.gather(reading, return_exceptions=True)
            raise

    def skip_to_end(self) -> None:
        """Skip to the end: the changes there now were written by this instance."""
        self.next_offset = self._tail.end()

    def close(self) -> None:
        """Release the reader's resources."""
        self._tail.close()

    def _begin_again(self) -> None:
        self._drop()
        self.next_offset = self._tail.minimum()
