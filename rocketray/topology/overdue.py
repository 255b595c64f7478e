"""Messages that a handler holds for too long: RocketMQ's consume timeout.

RocketMQ sends such a message back, so that it is handled twice when the handler comes to its end.
Here the handler keeps it, because it may still be at work; it is counted and said once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from .delivery import Delivery

__all__ = ["CONSUME_TIMEOUT_S", "OverdueWatch"]

logger = logging.getLogger(__name__)

CONSUME_TIMEOUT_S = 15 * 60.0


class OverdueWatch:
    """Looks now and then at what handlers have, and notes since when."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._since: dict[tuple[Delivery, int], float] = {}
        self._told: set[tuple[Delivery, int]] = set()
        self.count = 0
        """Messages that were held for longer than the timeout."""

    def look(self, deliveries: Iterable[Delivery], now_s: float) -> None:
        """Note what is in hand at *now_s*, and tell of what has been for too long."""
        held = {(one, one.cursor) for one in deliveries if one.is_active and not one.is_passed}
        self._since = {key: self._since.get(key, now_s) for key in held}
        self._told &= held
        for key, since in self._since.items():
            if now_s - since >= CONSUME_TIMEOUT_S and key not in self._told:
                self._told.add(key)
                self.count += 1
                logger.warning(
                    "group %s: a handler holds the message %s for %.0f minutes; "
                    "it keeps it, and its queue is not committed past it",
                    self._group, key[0].place(), (now_s - since) / 60,
                )  # fmt: skip
