"""What one handler has in hand: deliveries taken from its channel and not yet passed.

The inbox outlives the handler's coroutine. When a handler raises, its unpassed deliveries stay
here with their cursors, and the next life of the handler begins with them: none is skipped. The
deliveries of a queue that rests stay here too, and those of other queues go before them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .delivery import Delivery
from .trace_limit import TraceLimit

__all__ = ["Hand", "Inbox", "Run"]

Run = tuple[Delivery, int, int]
"""Messages of a delivery: from an index up to, not including, another."""
LEASE_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Hand:
    """What the handler has been given and has not finished: one message, or a list."""

    runs: Sequence[Run] = ()
    is_list: bool = False
    skipped: Collection[tuple[Delivery, int]] = ()
    """Messages of the runs that a filter of the stream left out of the list."""

    def __bool__(self) -> bool:
        return bool(self.runs)

    def blame(self, number: int) -> Delivery | None:
        """Finish what stands before value *number* of the list; the delivery that is there now.

        None when the list has no such value; then nothing is finished.
        """
        places = [
            (delivery, index)
            for delivery, begin, end in self.runs
            for index in range(begin, end)
            if (delivery, index) not in self.skipped
        ]
        if not 0 <= number < len(places):
            return None
        blamed, index = places[number]
        for delivery, _, end in self.runs:
            delivery.cursor = index if delivery is blamed else end
            if delivery is blamed:
                break
        return blamed


class Inbox:
    """The deliveries of one handler, in order. Used on the app's loop only."""

    def __init__(self, channel_queue: Any) -> None:
        self._queue = channel_queue
        self._unpassed: deque[Delivery] = deque()
        self._current: Delivery | None = None
        self._hand = Hand()
        self._resting: dict[tuple[str, int], float] = {}  # queues, and until when
        self._failures = 0  # in a row, outside of a message
        self._traces = TraceLimit()

    @property
    def current(self) -> Delivery | None:
        """The delivery that the handler works on, if it has one."""
        return self._current

    @property
    def is_drained(self) -> bool:
        """Nothing is at hand or queued, so the next item has to be waited for."""
        return not self._unpassed and self._queue.empty()

    def unpassed(self) -> list[Delivery]:
        """What is at hand now and does not rest, oldest first."""
        self._drop_released()
        return [*self._in_order(self._rests)]

    async def next(self) -> Delivery:
        """The oldest unpassed delivery that does not rest, else what the channel brings next.

        What others may own now rests too.
        Raises what was thrown into the channel: ``StopAsyncIteration`` when the agent stops.
        """
        while True:
            self._drop_released()
            for delivery in self._in_order(lambda one: one.is_suspended or self._rests(one)):
                self._current, self._failures = delivery, 0
                return delivery
            await self.take_next_within(self._shortest_rest())

    async def until_leased(self) -> None:
        """Wait as long as others may own the queues of what is at hand."""
        while any(delivery.is_suspended for delivery in self._unpassed):  # noqa: ASYNC110  # a lease runs out in silence
            await asyncio.sleep(LEASE_LOOK_S)

    async def take_next(self) -> None:
        """Wait for the channel's next delivery and keep it behind what is at hand."""
        self._unpassed.append(await self._queue.get())

    async def take_next_within(self, seconds: float | None) -> bool:
        """As :meth:`take_next`, giving up after *seconds*; False then. None waits for ever."""
        if seconds is None:
            await self.take_next()
            return True
        try:
            async with asyncio.timeout(seconds):
                await self.take_next()
        except TimeoutError:
            return False
        return True

    def give_list(self, hand: Hand) -> None:
        """The handler gets a list."""
        self._hand = hand

    def deactivate(self) -> None:
        """The handler's loop ended, or asked for its next list: it is inside no message."""
        self._hand = Hand()
        for delivery in self._unpassed:
            delivery.is_active = False

    def hand(self) -> Hand:
        """What the handler has now."""
        current = self._current
        if self._hand or current is None or not current.is_active or current.is_passed:
            return self._hand
        return Hand([(current, current.cursor, current.cursor + 1)])

    def rest(self, delivery: Delivery, seconds: float) -> None:
        """Hand out nothing more of the queue of *delivery* for so long."""
        self._resting[delivery.topic, delivery.queue_id] = self._now() + seconds

    def note_failure(self) -> int:
        """Count a failure outside of a message; returns how many there were in a row."""
        self._failures += 1
        return self._failures

    def may_trace(self, error: BaseException) -> bool:
        """Whether the traceback of *error* is to be logged; see trace_limit.py."""
        return self._traces.allows(error, self._now())

    def _in_order(self, waits: Callable[[Delivery], bool]) -> Iterator[Delivery]:
        """What is at hand and does not wait, oldest first, and of no queue what is behind what waits.

        A rest may end, and a lease be renewed, between two looks at deliveries of one queue.
        """
        waiting: set[tuple[str, int]] = set()
        for delivery in self._unpassed:
            queue = delivery.topic, delivery.queue_id
            if queue in waiting:
                continue
            if waits(delivery):
                waiting.add(queue)
            else:
                yield delivery

    def _rests(self, delivery: Delivery) -> bool:
        queue = delivery.topic, delivery.queue_id
        until = self._resting.get(queue)
        if until is None or delivery.is_withdrawn:
            return False
        if until > self._now():
            return True
        del self._resting[queue]
        return False

    def _shortest_rest(self) -> float | None:
        """Seconds until a delivery that is at hand may go on; None when there is none at hand."""
        if any(delivery.is_suspended for delivery in self._unpassed):
            return LEASE_LOOK_S
        ends = [
            end
            for delivery in self._unpassed
            if (end := self._resting.get((delivery.topic, delivery.queue_id))) is not None
        ]
        if not self._unpassed:
            return None
        return max(min(ends, default=0.0) - self._now(), 0.0)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _drop_released(self) -> None:
        """Anywhere: what is behind a queue that rests, or is not leased, may be done before it."""
        for delivery in [one for one in self._unpassed if _is_done(one)]:
            self._unpassed.remove(delivery)
            delivery.release()
        if self._current is not None and _is_done(self._current):
            self._current = None


def _is_done(delivery: Delivery) -> bool:
    return delivery.is_passed or delivery.is_withdrawn
