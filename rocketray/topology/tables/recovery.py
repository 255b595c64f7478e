"""Making a part of a table again from its changelog: all of it once, then what others add.

A part is read from the changelog's minimum to where it ended when the reading began, so the time
is bounded by what compaction leaves. When files are deleted under the reader, deletions that it
has not seen are lost with them: then the part is dropped, and read again from the new minimum.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rocketray.errors import OffsetOutOfRangeError
from rocketray.message import StoredMessage
from rocketray.topology.connection import QueueTail

__all__ = ["PartReader"]

logger = logging.getLogger(__name__)

READ_MAX_MESSAGES = 1000


class PartReader:
    """Reads one queue of one changelog; for one task at a time."""

    def __init__(
        self,
        name: str,
        tail: QueueTail,
        *,
        apply: Callable[[list[StoredMessage]], Awaitable[None]],
        drop: Callable[[], None],
    ) -> None:
        """*apply* takes changes, *drop* empties the part of the table."""
        self._name = name
        self._tail = tail
        self._apply = apply
        self._drop = drop
        self.next_offset = 0
        """Everything below it was applied, or deleted by its owner before it could matter."""

    async def recover(self, persisted: int | None = None) -> int:
        """Read to where the queue ends now; the number of changes.

        The part is empty, or holds what a store kept up to the change at offset *persisted*.
        """
        minimum = self._tail.minimum()
        self.next_offset = minimum if persisted is None else persisted + 1
        end = self._tail.end()
        if not minimum <= self.next_offset <= end:
            if persisted is not None:
                logger.warning(
                    "%s: what is kept here ends at offset %d and the changelog goes from %d to %d; "
                    "making it again",
                    self._name, self.next_offset, minimum, end,
                )  # fmt: skip
            self._begin_again()
        return await self.catch_up()

    async def catch_up(self) -> int:
        """Apply what was added until now; the number of changes."""
        end, count = self._tail.end(), 0
        while self.next_offset < end:
            room = min(READ_MAX_MESSAGES, end - self.next_offset)
            try:
                changes = await self._read(room)
            except OffsetOutOfRangeError:
                logger.info("%s: files went while they were read; reading again", self._name)
                self._begin_again()
                end = self._tail.end()  # what is alive was written again behind the old end
                continue
            await self._apply(changes)
            self.next_offset += len(changes)
            count += len(changes)
        return count

    async def _read(self, room: int) -> list[StoredMessage]:
        """The next changes; who cancels this waits until the thread has let go of the log."""
        reading = asyncio.create_task(asyncio.to_thread(self._tail.read, self.next_offset, room))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            await asyncio.gather(reading, return_exceptions=True)
            raise

    def skip_to_end(self) -> None:
        """What is there now was written here."""
        self.next_offset = self._tail.end()

    def close(self) -> None:
        """Give up what the reading holds."""
        self._tail.close()

    def _begin_again(self) -> None:
        self._drop()
        self.next_offset = self._tail.minimum()
