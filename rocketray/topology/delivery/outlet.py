"""The path of deliveries from a feed to the queue that its handlers read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .delivery import Delivery

__all__ = ["OrderedOutlet", "Outlet"]


class Outlet:
    """Passes deliveries on as they arrive."""

    def __init__(self, hand_on: Callable[[Delivery], None]) -> None:
        self._hand_on = hand_on

    def put(self, delivery: Delivery) -> None:
        """Pass on *delivery*, the next one of its queue."""
        self._hand_on(delivery)

    def released(self, delivery: Delivery) -> None:
        """Note that no handler has *delivery* any more."""


class OrderedOutlet(Outlet):
    """Passes on a queue's next delivery when no handler has the previous one.

    Otherwise handlers that share a queue of deliveries would process one queue in parallel.
    """

    def __init__(self, hand_on: Callable[[Delivery], None]) -> None:
        super().__init__(hand_on)
        self._links: dict[int, deque[Delivery]] = {}

    def put(self, delivery: Delivery) -> None:
        """Pass on *delivery*, the next one of its queue, or keep it until its turn."""
        link = self._links.setdefault(delivery.queue_id, deque())
        link.append(delivery)
        if len(link) == 1:
            self._hand_on(delivery)

    def released(self, delivery: Delivery) -> None:
        """Note that no handler has *delivery* any more: pass on the next one."""
        link = self._links[delivery.queue_id]
        assert link[0] is delivery
        link.popleft()
        if link:
            self._hand_on(link[0])
        else:
            del self._links[delivery.queue_id]
