"""Messages that stay unfinished for too long: RocketMQ's consume timeout.

- A message that a handler is processing stays with it, because the handler may still be at work;
  that is counted and logged once. RocketMQ sends it back, so it is processed twice when the handler
  finishes.
- A message that a handler passed and never acknowledged, after ``stream.noack()``, is sent back, as
  in RocketMQ. No code may be left to acknowledge it, for instance when the handler raised on a
  later one. It would hold up its queue until the app starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from .delivery import Delivery, position_text

logger = logging.getLogger(__name__)

CONSUME_TIMEOUT_MS = 15 * 60_000  # RocketMQ's consumeTimeout
NOT_ACKNOWLEDGED = "not acknowledged for 15 minutes"


class OverdueWatch:
    """Checks periodically what handlers are processing or left unacknowledged, and since when."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._since: dict[tuple[Delivery, int], int] = {}
        self._told: set[tuple[Delivery, int]] = set()
        self.count = 0
        """Messages that were not finished for longer than the timeout."""

    def find_overdue(
        self, deliveries: Iterable[Delivery], now_ms: int
    ) -> list[tuple[Delivery, int]]:
        """Record the unfinished messages at *now_ms*, and return those overdue.

        Returned messages were passed, but not acknowledged, and have to be sent back: the delivery
        and the index of the message. Each is returned once. A clock that is set back restarts the
        times.
        """
        held, left = set[tuple[Delivery, int]](), set[tuple[Delivery, int]]()
        for delivery in deliveries:
            if delivery.is_withdrawn:
                continue
            if delivery.is_active and not delivery.is_passed:
                held.add((delivery, delivery.cursor))
            left.update((delivery, index) for index in delivery.acks.missing(delivery.cursor))
        here = held | left
        # The earlier of both times, so that a clock that was set back counts from its present time.
        self._since = {key: min(self._since.get(key, now_ms), now_ms) for key in here}
        self._told &= here
        overdue = []
        for key, since in self._since.items():
            if now_ms - since >= CONSUME_TIMEOUT_MS and key not in self._told:
                self._told.add(key)
                self.count += 1
                self._tell(*key, now_ms - since, is_held=key in held)
                if key in left:
                    overdue.append(key)
        return sorted(overdue, key=lambda key: key[0].shared.next_queue_offset(key[1]))

    def _tell(self, delivery: Delivery, index: int, waited_ms: int, *, is_held: bool) -> None:
        logger.warning(
            "group %s: the message %s is not %s for %.0f minutes; %s",
            self._group,
            position_text(delivery, index),
            "finished" if is_held else "acknowledged",
            waited_ms / 60_000,
            "its handler still has it, and its queue is not committed past it"
            if is_held
            else "it is sent back",
        )
