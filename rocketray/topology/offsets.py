"""How far a queue is finished, while its messages are with several handlers at once.

The ledger of a feed keeps, per queue and oldest first, every delivery that is not finished. What
may be committed is where the oldest of them stands: never past an unfinished message, and always
past the entries that the filter left out. Asking moves the ledger on and forgets what is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from .delivery import Delivery

__all__ = ["OffsetLedger"]


class OffsetLedger:
    """The unfinished deliveries of one feed. Used on the app's loop only."""

    def __init__(self) -> None:
        self._outstanding: dict[int, deque[Delivery]] = {}
        self._reported: dict[int, int] = {}

    def add(self, delivery: Delivery) -> None:
        """Note *delivery*; those of one queue come in the order of their offsets."""
        self._outstanding.setdefault(delivery.queue_id, deque()).append(delivery)

    def outstanding(self) -> Iterator[Delivery]:
        """All deliveries that are not finished, or finished and not yet reported."""
        for deliveries in self._outstanding.values():
            yield from deliveries

    def advance(self) -> list[tuple[int, int]]:
        """(queue id, next queue offset) of every queue that moved since the last call."""
        moved = []
        for queue_id, deliveries in self._outstanding.items():
            next_offset = _oldest_unfinished(deliveries)
            if next_offset > self._reported.get(queue_id, -1):
                self._reported[queue_id] = next_offset
                moved.append((queue_id, next_offset))
        return moved

    def forget(self, queue_ids: Iterable[int]) -> None:
        """Drop queues that are taken away; their unfinished messages go to another member."""
        for queue_id in queue_ids:
            self._outstanding.pop(queue_id, None)
            self._reported.pop(queue_id, None)


def _oldest_unfinished(deliveries: deque[Delivery]) -> int:
    """Where the queue may be committed to, or -1; removes finished deliveries at the head."""
    next_offset = -1
    while deliveries:
        next_offset = deliveries[0].next_queue_offset()
        if not deliveries[0].is_finished():
            break
        deliveries.popleft()
    return next_offset
