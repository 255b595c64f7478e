"""The position up to which a queue is finished, while several handlers process its messages.

The ledger of a feed keeps, per queue and oldest first, every unfinished delivery. The position of
the oldest one may be committed: never past an unfinished message, and always past the entries that
the filter rejected. Asking advances the ledger and drops finished deliveries, as does each delivery
that its handler has passed.

Between asking and committing, queues may be revoked and assigned again, so the ledger says whether
an offset may still be committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter

from .delivery import Delivery


class OffsetLedger:
    """The unfinished deliveries of one feed. Used on the app's loop only."""

    def __init__(self) -> None:
        self._outstanding: dict[int, deque[Delivery]] = {}
        self._spans: dict[int, int] = {}  # messages in all deliveries of a queue
        self._begun: dict[int, int] = {}  # the offset of the first message
        self._finished: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    def add(self, delivery: Delivery) -> None:
        """Record *delivery*; those of one queue come in the order of their offsets."""
        queue_id = delivery.queue_id
        self._begun.setdefault(queue_id, delivery.queue_offset())
        self._outstanding.setdefault(queue_id, deque()).append(delivery)
        self._spans[queue_id] = self._spans.get(queue_id, 0) + len(delivery)

    def outstanding(self) -> Iterator[Delivery]:
        """Yield all unfinished deliveries, and finished ones that were not looked at since."""
        for deliveries in self._outstanding.values():
            yield from deliveries

    def drop_finished(self, queue_id: int) -> None:
        """Drop the queue's finished deliveries now, and with them their messages.

        The next commit, which would do so, may be seconds and a million messages later.
        """
        if queue_id in self._outstanding:
            self._move(queue_id)

    def holds(self, delivery: Delivery) -> bool:
        """Return whether *delivery* is unfinished, and its queue was not revoked."""
        return any(one is delivery for one in self._outstanding.get(delivery.queue_id, ()))

    def gaps(self) -> set[Delivery]:
        """Return unpassed deliveries before a begun one: left out, the begun one is redelivered."""
        found: set[Delivery] = set()
        for deliveries in self._outstanding.values():
            begun = [number for number, one in enumerate(deliveries) if one.is_begun]
            ahead = islice(deliveries, begun[-1] if begun else 0)
            found.update(one for one in ahead if not one.is_passed)
        return found

    def advance(self) -> list[tuple[int, int]]:
        """Return (queue id, next queue offset) of every queue beyond its last commit."""
        offsets = [(queue_id, self._move(queue_id)) for queue_id in self._outstanding]
        # -1 stands for "nothing yet" on both sides, so a queue that has not begun is never
        # returned.
        return [each for each in offsets if each[1] > self._committed.get(each[0], -1)]

    def commit(self, queue_id: int, next_offset: int) -> bool:
        """Record that the queue is committed so far; False when the offset must not be committed.

        That is so if a higher one was committed, or the queue was revoked since ``advance``.
        """
        begun, finished = self._begun.get(queue_id, 0), self._finished.get(queue_id, -1)
        # Too low: from before this assignment, or committed already. Too high: finished in an
        # earlier assignment, and not in this one.
        if not max(begun, self._committed.get(queue_id, -1) + 1) <= next_offset <= finished:
            return False
        self._committed[queue_id] = next_offset
        return True

    def span(self, limit: int) -> tuple[int, int]:
        """Return the queue with most messages from its first unfinished one on, and their number.

        For a queue with no more than *limit*, the number may include finished ones.
        """
        for queue_id, count in self._spans.items():
            if count > limit:
                self._move(queue_id)
        return max(self._spans.items(), key=itemgetter(1), default=(-1, 0))

    def forget_queues(self, queue_ids: Iterable[int]) -> None:
        """Drop revoked queues; their unfinished messages go to another member."""
        for queue_id in queue_ids:
            self._outstanding.pop(queue_id, None)
            for table in (self._spans, self._begun, self._finished, self._committed):
                table.pop(queue_id, None)

    def _move(self, queue_id: int) -> int:
        """Return the offset to commit, or -1; remove finished deliveries at the head."""
        deliveries = self._outstanding[queue_id]
        while deliveries:
            self._finished[queue_id] = deliveries[0].next_queue_offset()
            if not deliveries[0].is_finished():
                break
            self._spans[queue_id] -= len(deliveries.popleft())
        return self._finished.get(queue_id, -1)
