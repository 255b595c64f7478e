"""The deliveries of one handler: taken from its channel and not yet passed.

The inbox outlives the handler's coroutine. When a handler raises, its unpassed deliveries stay here
with their cursors, and the handler resumes with them when it is started again: none is skipped. The
deliveries of a paused queue stay here too, and those of other queues overtake them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from .delivery import Delivery

Run = tuple[Delivery, int, int]
"""Messages of a delivery: from an index up to, not including, another."""
# A lease is renewed by a heartbeat's answer, in another thread: no event tells the loop.
LEASE_LOOK_S = 0.05
_Kind = tuple[type[BaseException], str, int]
# A failure that is always the same costs some thirty tracebacks a day: seven in about an hour, then
# one an hour.
_FIRST_PAUSE_S = 60.0
_MAX_PAUSE_S = 3600.0
_KINDS_MAX = 64  # bounds what code that raises on ever new lines, such as generated code, keeps


@dataclass(frozen=True, slots=True)
class Hand:
    """The values that the handler was given and has not finished: one message, or a list."""

    runs: Sequence[Run] = ()
    is_list: bool = False
    skipped: Collection[tuple[Delivery, int]] = ()
    """Messages of the runs that a filter of the stream left out of the list."""

    def __bool__(self) -> bool:
        return bool(self.runs)

    def blame(self, number: int) -> Delivery | None:
        """Finish the messages before value *number* of the list; return the delivery of that value.

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
        self.current: Delivery | None = None
        """The delivery that the handler processes, if it has one."""
        self._hand = Hand()
        self._resting: dict[tuple[str, int], float] = {}  # paused queues, and until when
        self._failures = 0  # consecutive, outside of a message
        self._traces = TraceLimit()

    @property
    def is_drained(self) -> bool:
        """Whether no delivery is buffered or queued, so the next item has to be waited for."""
        return not self._unpassed and self._queue.empty()

    def unpassed(self) -> list[Delivery]:
        """Return the buffered deliveries that are not paused, oldest first."""
        self._drop_released()
        return [*self._in_order(self._rests)]

    async def next(self) -> Delivery:
        """Return the oldest unpassed delivery that is not paused, else the next one of the channel.

        Deliveries of queues that other members may own now wait too. Raises the exception thrown
        into the channel: ``StopAsyncIteration`` when the agent stops.
        """
        while True:
            self._drop_released()
            for delivery in self._in_order(lambda one: one.is_suspended or self._rests(one)):
                self.current, self._failures = delivery, 0
                return delivery
            await self.take_next(self._shortest_rest())

    async def until_leased(self) -> None:
        """Wait as long as other members may own the queues of the buffered deliveries."""
        while any(delivery.is_suspended for delivery in self._unpassed):  # noqa: ASYNC110  # leases expire
            await asyncio.sleep(LEASE_LOOK_S)

    async def take_next(self, seconds: float | None = None) -> bool:
        """Buffer the channel's next delivery; return False after *seconds*. None waits for ever."""
        try:
            async with asyncio.timeout(seconds):
                self._unpassed.append(await self._queue.get())
        except TimeoutError:
            return False
        return True

    def give_list(self, hand: Hand) -> None:
        """Record that the handler gets a list."""
        self._hand = hand

    def deactivate(self) -> None:
        """Record that the handler processes no message: it ended, or asked for its next list."""
        self._hand = Hand()
        for delivery in self._unpassed:
            delivery.is_active = False

    def hand(self) -> Hand:
        """Return the values that the handler has now."""
        current = self.current
        if self._hand or current is None or not current.is_active or current.is_passed:
            return self._hand
        return Hand([(current, current.cursor, current.cursor + 1)])

    def rest(self, delivery: Delivery, seconds: float) -> None:
        """Pause the queue of *delivery* for so long."""
        self._resting[delivery.topic, delivery.queue_id] = self._now() + seconds

    def note_failure(self) -> int:
        """Count a failure outside of a message; return the number of consecutive ones."""
        self._failures += 1
        return self._failures

    def may_trace(self, error: BaseException) -> bool:
        """Return whether the traceback of *error* is to be logged; asking counts."""
        return self._traces.allows(error, self._now())

    def _in_order(self, waits: Callable[[Delivery], bool]) -> Iterator[Delivery]:
        """Yield buffered deliveries that need not wait, oldest first; none behind a waiting one.

        A pause may end, and a lease be renewed, between two looks at deliveries of one queue.
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
        """Return the seconds until a buffered delivery may resume; None when none is buffered."""
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
        """Drop released deliveries anywhere: those behind a waiting queue may finish before it."""
        for delivery in [one for one in self._unpassed if _is_done(one)]:
            self._unpassed.remove(delivery)
            delivery.release()
        if self.current is not None and _is_done(self.current):
            self.current = None


def _is_done(delivery: Delivery) -> bool:
    return delivery.is_passed or delivery.is_withdrawn


class TraceLimit:
    """The failures of one handler, by kind: when each may be traced again.

    The kind of a failure is its exception's type and the line that raised it. One traceback is
    enough for a message that fails every second, and for a thousand messages that fail alike;
    failure.py logs a line for each failure.
    """

    def __init__(self) -> None:
        self._next: dict[_Kind, tuple[float, float]] = {}  # earliest time, and pause after it

    def allows(self, error: BaseException, now_s: float) -> bool:
        """Return whether the traceback of *error* is to be logged; asking counts as logging it.

        The pause until the next one of its kind doubles each time, from a minute to an hour.
        """
        kind = type(error), *_place(error.__traceback__)
        next_s, pause_s = self._next.pop(kind, (now_s, _FIRST_PAUSE_S))
        if now_s < next_s:
            self._next[kind] = next_s, pause_s
            return False
        self._next[kind] = now_s + pause_s, min(2 * pause_s, _MAX_PAUSE_S)
        if len(self._next) > _KINDS_MAX:
            # The least recent one: each look puts its kind at the end of the dictionary.
            del self._next[next(iter(self._next))]
        return True


def _place(trace: TracebackType | None) -> tuple[str, int]:
    if trace is None:
        return "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno
