"""How far a queue is finished, while its messages are with several handlers at once.

The ledger of a feed keeps, per queue and oldest first, every delivery that is not finished. What
may be committed is where the oldest of them stands: never past an unfinished message, and always
past the entries that the filter left out. Asking moves the ledger on and forgets what is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter

from .delivery import Delivery

__all__ = ["OffsetLedger"]


class OffsetLedger:
    """The unfinished deliveries of one feed. Used on the app's loop only."""

    def __init__(self) -> None:
        self._outstanding: dict[int, deque[Delivery]] = {}
        self._spans: dict[int, int] = {}  # messages in all deliveries of a queue
        self._finished: dict[int, int] = {}
        self._reported: dict[int, int] = {}

    def add(self, delivery: Delivery) -> None:
        """Note *delivery*; those of one queue come in the order of their offsets."""
        queue_id = delivery.queue_id
        self._outstanding.setdefault(queue_id, deque()).append(delivery)
        self._spans[queue_id] = self._spans.get(queue_id, 0) + len(delivery)

    def outstanding(self) -> Iterator[Delivery]:
        """All deliveries that are not finished, and finished ones that were not looked at since."""
        for deliveries in self._outstanding.values():
            yield from deliveries

    def gaps(self) -> set[Delivery]:
        """Deliveries before one that is begun, and not passed: with them left, that comes again."""
        found: set[Delivery] = set()
        for deliveries in self._outstanding.values():
            begun = [number for number, one in enumerate(deliveries) if one.is_begun]
            ahead = islice(deliveries, begun[-1] if begun else 0)
            found.update(one for one in ahead if not one.is_passed)
        return found

    def advance(self) -> list[tuple[int, int]]:
        """(queue id, next queue offset) of every queue that moved since the last call."""
        moved = []
        for queue_id in self._outstanding:
            next_offset = self._move(queue_id)
            if next_offset > self._reported.get(queue_id, -1):
                self._reported[queue_id] = next_offset
                moved.append((queue_id, next_offset))
        return moved

    def span(self, limit: int) -> tuple[int, int]:
        """The queue with most messages from its first unfinished one on, and how many.

        A queue with no more than *limit* may count as having some that are finished.
        """
        for queue_id, count in self._spans.items():
            if count > limit:
                self._move(queue_id)
        return max(self._spans.items(), key=itemgetter(1), default=(-1, 0))

    def forget(self, queue_ids: Iterable[int]) -> None:
        """Drop queues that are taken away; their unfinished messages go to another member."""
        for queue_id in queue_ids:
            for table in (self._outstanding, self._spans, self._finished, self._reported):
                table.pop(queue_id, None)

    def _move(self, queue_id: int) -> int:
        """Where the queue may be committed to, or -1; removes finished deliveries at the head."""
        deliveries = self._outstanding[queue_id]
        while deliveries:
            self._finished[queue_id] = deliveries[0].next_queue_offset()
            if not deliveries[0].is_finished():
                break
            self._spans[queue_id] -= len(deliveries.popleft())
        return self._finished.get(queue_id, -1)
