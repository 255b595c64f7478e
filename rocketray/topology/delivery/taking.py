"""Lists of messages for ``stream.take``: collected from deliveries, finished as a whole.

A list may span several deliveries, and so several queues. While the handler has it, no cursor
moves; they advance when the handler asks for the next list. When a handler raises, the messages of
its list are redelivered one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .delivery import Delivery
from .inbox import Hand, Inbox

SKIPPED = object()
"""In place of a value that a filter of the stream left out."""


class Source(Protocol):
    """The interface of a stream to the collector."""

    @property
    def has_processors(self) -> bool:
        """Whether values go through filters or other processors of the stream."""

    def enter(self, delivery: Delivery) -> None:
        """Record that the handler starts *delivery*."""

    async def process(self, delivery: Delivery, index: int, value: Any) -> Any:
        """Return *value* after filters, or ``SKIPPED``."""

    async def fail(
        self, delivery: Delivery, error: Exception, *, is_decoding: bool = False
    ) -> bool:
        """Handle an undeliverable message; return whether *delivery* continues behind it."""

    def make_event(self, delivery: Delivery, index: int, value: Any) -> Any:
        """Return the event of one message."""


@dataclass(slots=True)
class TakenValues:
    """Values for one list, and how far it consumes each delivery."""

    values: list[Any] = field(default_factory=list)
    parts: list[tuple[Delivery, int]] = field(default_factory=list)
    skipped: set[tuple[Delivery, int]] = field(default_factory=set)

    def new(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Return those of *deliveries* from which nothing was taken yet."""
        known = [delivery for delivery, _ in self.parts]
        return [delivery for delivery in deliveries if delivery not in known]

    def begin(self) -> bool:
        """Give the list to the handler; return False when there is nothing to deliver.

        If a queue was revoked meanwhile, its values are not delivered, nor those collected with
        them: these are collected again.
        """
        if any(delivery.is_withdrawn for delivery, _ in self.parts):
            self.values, self.parts, self.skipped = [], [], set()
        for delivery, _ in self.parts:
            delivery.is_active = True
        return bool(self.values)

    def hand(self) -> Hand:
        """Return the list as the handler has it."""
        runs = [(delivery, delivery.cursor, end) for delivery, end in self.parts]
        return Hand(runs, is_list=True, skipped=self.skipped)

    def finish(self) -> None:
        """Finish this list: the handler asked for the next one."""
        for delivery, cursor in self.parts:
            delivery.cursor = cursor
            delivery.is_active = False


@dataclass(frozen=True, slots=True)
class Collector:
    """Fills lists of up to *max_count*; with *within_s* None waits for a full one for ever.

    *of_one_queue* is for tables: a change belongs to the queue being processed.
    """

    source: Source
    inbox: Inbox
    decode: Callable[[bytes], Any]
    max_count: int
    within_s: float | None
    as_events: bool
    of_one_queue: bool = False

    async def collect(self) -> TakenValues:
        """Return the next list: first from buffered deliveries, then from the channel, in time.

        The time runs from the first message on. All may be filtered out, so it may be empty.
        """
        taken = TakenValues()
        # Waits for a first message however long; it stays buffered, and is taken below.
        await self.inbox.next()
        loop = asyncio.get_running_loop()
        end = None if self.within_s is None else loop.time() + self.within_s
        while True:
            for delivery in taken.new(self.inbox.unpassed()):
                # It failed in a list before: see failure.py.
                is_alone = delivery.cursor < delivery.alone_until
                if taken.parts:
                    is_of_another = taken.parts[0][0].shared.tp != delivery.shared.tp
                    if is_alone or (self.of_one_queue and is_of_another):
                        return taken
                is_cut = await self._take_from(taken, delivery, 1 if is_alone else self.max_count)
                if is_alone or is_cut or len(taken.values) >= self.max_count:
                    return taken
            left = None if end is None else end - loop.time()
            if (left is not None and left <= 0) or not await self.inbox.take_next(left):
                return taken

    async def _take_from(self, taken: TakenValues, delivery: Delivery, max_count: int) -> bool:
        """Take values of *delivery*; True if it stopped before one that cannot be decoded."""
        source, bodies = self.source, delivery.shared.bodies
        source.enter(delivery)
        stop, is_cut = delivery.batch_end(), False
        # The fast way first; it takes nothing where a value fails, or needs more than its decoder.
        index = self._take_plain(taken, delivery, max_count)
        while index < stop and len(taken.values) < max_count:
            is_decoding = True
            try:
                value = self.decode(bodies[index])
                event = source.make_event(delivery, index, value) if self.as_events else None
                is_decoding = False
                value = await source.process(delivery, index, value)
            except Exception as error:  # noqa: BLE001  # whatever a codec or a filter raises
                is_cut = index > delivery.cursor  # the next list begins with it
                if is_cut or not await source.fail(delivery, error, is_decoding=is_decoding):
                    is_cut = True  # later messages must not overtake it
                    break
            else:
                if value is SKIPPED:
                    taken.skipped.add((delivery, index))
                else:
                    taken.values.append(event if self.as_events else value)
            index += 1
        if index > delivery.cursor:
            taken.parts.append((delivery, index))
        return is_cut

    def _take_plain(self, taken: TakenValues, delivery: Delivery, max_count: int) -> int:
        """Take values that need only decoding; return the index of the first not taken."""
        start = delivery.cursor
        if self.as_events or self.source.has_processors or delivery.acks.are_required:
            return start
        end = min(delivery.batch_end(), start + max_count - len(taken.values))
        try:
            values = [*map(self.decode, delivery.shared.bodies[start:end])]
        except Exception:  # noqa: BLE001  # one by one it is met again, with its message
            return start
        taken.values += values
        return end
