"""Recovery of a part of a table from its changelog: all of it once, then later changes.

A part is read from the changelog's minimum to its end at the start of the read, so compaction
bounds the time. If files are deleted during the read, deletions of keys in them are lost. Then the
part is dropped, and read again from the new minimum.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rocketray.broker.topics.ownership_record import epoch_of
from rocketray.broker.topics.queue_tail import Tail
from rocketray.errors import OffsetOutOfRangeError
from rocketray.message import StoredMessage

logger = logging.getLogger(__name__)

READ_MAX_MESSAGES = 1000  # applied at once, on the loop that the app's handlers share


@dataclass(slots=True)
class PartReader:
    """A reader of one queue of one changelog; for one task at a time.

    ``apply`` takes changes, ``drop`` empties the part of the table. Everything below
    ``next_offset`` was applied, or deleted by its owner before it was needed.
    """

    name: str
    tail: Tail
    apply: Callable[[list[StoredMessage]], Awaitable[None]]
    drop: Callable[[], None]
    next_offset: int = 0

    async def recover(self, persisted: int | None = None) -> int:
        """Read to the current end of the queue; return the number of changes.

        The part is empty, or holds what a store kept up to the change at offset *persisted*.
        """
        # Before the end: if files are deleted in between, the read below notices it.
        minimum = await asyncio.to_thread(self.tail.minimum)
        self.next_offset = minimum if persisted is None else persisted + 1
        end = await asyncio.to_thread(self.tail.end)
        if not minimum <= self.next_offset <= end:
            if persisted is not None:
                logger.warning(
                    "%s: the local copy ends at offset %d and the changelog has offsets %d to %d; "
                    "rebuilding it",
                    self.name, self.next_offset, minimum, end,
                )  # fmt: skip
            await self._begin_again()
        return await self.catch_up()

    async def catch_up(self) -> int:
        """Apply the changes added until now; return their number."""
        end, count = await asyncio.to_thread(self.tail.end), 0
        while self.next_offset < end:
            room = min(READ_MAX_MESSAGES, end - self.next_offset)
            try:
                changes = await self._read(room)
            except OffsetOutOfRangeError:
                logger.info("%s: files were removed while they were read; reading again", self.name)
                await self._begin_again()
                # Compaction wrote the live changes again behind the old end.
                end = await asyncio.to_thread(self.tail.end)
                continue
            # The records of new owners (broker/shards/ownership_fence.py) are in the queue, and no
            # changes.
            own = [change for change in changes if epoch_of(change) is None]
            await self.apply(own)
            # What recovery found lost has offsets, too; without changes, it is all that is left.
            self.next_offset = changes[-1].queue_offset + 1 if changes else end
            count += len(own)
        return count

    async def _read(self, room: int) -> list[StoredMessage]:
        """Return the next changes; if cancelled, wait until the thread has released the log."""
        reading = asyncio.create_task(asyncio.to_thread(self.tail.read, self.next_offset, room))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            await asyncio.gather(reading, return_exceptions=True)
            raise

    async def skip_to_end(self) -> None:
        """Skip to the end: the changes there now were written by this instance."""
        self.next_offset = await asyncio.to_thread(self.tail.end)

    def close(self) -> None:
        """Release the reader's resources."""
        self.tail.close()

    def forget_part(self) -> None:
        """Drop the part, which has changes that the log does not have; it is read again."""
        self.drop()
        self.next_offset = 0

    async def _begin_again(self) -> None:
        self.drop()
        self.next_offset = await asyncio.to_thread(self.tail.minimum)
