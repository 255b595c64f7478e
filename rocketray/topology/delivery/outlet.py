"""The way of deliveries from a feed to the queue that its handlers read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .delivery import Delivery

__all__ = ["OrderedOutlet", "Outlet"]


class Outlet:
    """Hands deliveries on as they come."""

    def __init__(self, hand_on: Callable[[Delivery], None]) -> None:
        self._hand_on = hand_on

    def put(self, delivery: Delivery) -> None:
        """*delivery* is next in its queue."""
        self._hand_on(delivery)

    def released(self, delivery: Delivery) -> None:
        """No handler has *delivery* any more."""


class OrderedOutlet(Outlet):
    """Hands a queue's next delivery on when no handler has the one before.

    Handlers that share a queue of deliveries would else work on one queue side by side.
    """

    def __init__(self, hand_on: Callable[[Delivery], None]) -> None:
        super().__init__(hand_on)
        self._lanes: dict[int, deque[Delivery]] = {}

    def put(self, delivery: Delivery) -> None:
        """*delivery* is next in its queue."""
        lane = self._lanes.setdefault(delivery.queue_id, deque())
        lane.append(delivery)
        if len(lane) == 1:
            self._hand_on(delivery)

    def released(self, delivery: Delivery) -> None:
        """No handler has *delivery* any more: the next one may go."""
        lane = self._lanes[delivery.queue_id]
        assert lane[0] is delivery
        lane.popleft()
        if lane:
            self._hand_on(lane[0])
        else:
            del self._lanes[delivery.queue_id]
