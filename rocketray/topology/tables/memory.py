"""Tables in memory, where every key records the queue that it came with.

Faust's own store does not record the queue of keys that were set here. So the keys of a revoked
queue stay in it, and are taken as current when the queue is assigned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from faust.stores.memory import Store

__all__ = ["QueueMemory"]


class QueueMemory(Store):  # type: ignore[misc]  # Faust's types are not followed
    """A dictionary whose keys can be dropped by queue."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.queue_of: dict[Any, int] = {}

    def forget(self, queue_id: int) -> None:
        """Drop every key of that queue."""
        for key in [key for key, queue in self.queue_of.items() if queue == queue_id]:
            del self.queue_of[key]
            self.data.pop(key, None)

    def apply_changelog_batch(
        self,
        batch: Iterable[Any],
        to_key: Callable[[Any], Any],
        to_value: Callable[[Any], Any],
    ) -> None:
        """Apply changes, in order."""
        for event in batch:
            key = to_key(event.key)
            if event.message.value is None:
                self.data.pop(key, None)
                self.queue_of.pop(key, None)
            else:
                self.data[key] = to_value(event.value)
                self.queue_of[key] = event.message.partition

    async def on_recovery_completed(self, active_tps: Any, standby_tps: Any) -> None:
        """Do nothing: another instance's keys were dropped with their queue."""

    def _clear(self) -> None:
        super()._clear()
        self.queue_of.clear()
