"""What one handler has in hand: deliveries taken from its channel and not yet passed.

The inbox outlives the handler's coroutine. When a handler raises, its unpassed deliveries stay
here with their cursors, and the next life of the handler begins with them: that is how a message
comes again, in its place, and none is skipped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from .delivery import Delivery

__all__ = ["Inbox"]

LEASE_LOOK_S = 0.05


class Inbox:
    """The deliveries of one handler, in order. Used on the app's loop only."""

    def __init__(self, channel_queue: Any) -> None:
        self._queue = channel_queue
        self._unpassed: deque[Delivery] = deque()
        self.attempts = 0
        """Failures in a row without a message passed in between."""
        self._failed_at: tuple[Delivery, int] | None = None

    @property
    def current(self) -> Delivery | None:
        """The delivery that the handler works on, if it has one."""
        return self._unpassed[0] if self._unpassed else None

    @property
    def is_drained(self) -> bool:
        """Nothing is at hand or queued, so the next item has to be waited for."""
        return not self._unpassed and self._queue.empty()

    def unpassed(self) -> list[Delivery]:
        """What is at hand now, oldest first."""
        self._drop_released()
        return list(self._unpassed)

    async def next(self) -> Delivery:
        """The oldest unpassed delivery, else what the channel brings next.

        Raises what was thrown into the channel: ``StopAsyncIteration`` when the agent stops.
        """
        self._drop_released()
        while not self._unpassed or self._unpassed[0].is_suspended:
            if self._unpassed:
                await self.until_leased()
            else:
                await self.take_next()
            self._drop_released()
        return self._unpassed[0]

    async def until_leased(self) -> None:
        """Wait as long as others may own the queues of what is at hand."""
        while any(delivery.is_suspended for delivery in self._unpassed):  # noqa: ASYNC110  # a lease runs out in silence
            await asyncio.sleep(LEASE_LOOK_S)

    async def take_next(self) -> None:
        """Wait for the channel's next delivery and keep it behind what is at hand."""
        self._unpassed.append(await self._queue.get())

    async def take_next_within(self, seconds: float | None) -> bool:
        """As :meth:`take_next`, giving up after *seconds*; False then. None waits for ever."""
        try:
            async with asyncio.timeout(seconds):
                await self.take_next()
        except TimeoutError:
            return False
        return True

    def note_failure(self) -> int:
        """Count a failure of the handler; returns how many in a row hit the same place."""
        current = self.current
        place = None if current is None else (current, current.cursor)
        self.attempts = self.attempts + 1 if place == self._failed_at else 1
        self._failed_at = place
        return self.attempts

    def place(self) -> str:
        """Where the handler is, for the log."""
        current = self.current
        if current is None:
            return "outside of a message"
        return f"at topic {current.topic} queue {current.queue_id} offset {current.queue_offset()}"

    def deactivate(self) -> None:
        """The handler's loop ended: it is inside none of its messages."""
        for delivery in self._unpassed:
            delivery.is_active = False

    def _drop_released(self) -> None:
        while self._unpassed and _is_done(self._unpassed[0]):
            self._unpassed.popleft().release()


def _is_done(delivery: Delivery) -> bool:
    return delivery.is_passed or delivery.is_withdrawn
