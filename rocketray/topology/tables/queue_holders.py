"""Ownership of queue numbers by an instance of an app, for its tables.

A table has a part for every queue number, and a part has one owner. All agents of an instance own
the same numbers (see the groups' co-assignment), but queues are assigned and revoked member by
member: the instance owns the part from the first member that gains the number until the last that
loses it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

__all__ = ["QueueHolders"]


class QueueHolders:
    """The holders of each queue number in this process."""

    def __init__(self) -> None:
        self._holders: dict[int, set[Hashable]] = {}

    def owned(self) -> list[int]:
        """Return the queue numbers that have a holder."""
        return sorted(self._holders)

    def hold(self, holder: Hashable, queue_ids: Iterable[int]) -> list[int]:
        """Add *holder* to *queue_ids*; return those that had no holder before."""
        gained = []
        for queue_id in queue_ids:
            if queue_id not in self._holders:
                gained.append(queue_id)
            self._holders.setdefault(queue_id, set()).add(holder)
        return gained

    def release(self, holder: Hashable, queue_ids: Iterable[int]) -> list[int]:
        """Remove *holder* from *queue_ids*; return those that have no holder any more."""
        lost = []
        for queue_id in queue_ids:
            holders = self._holders.get(queue_id, set())
            holders.discard(holder)
            if not holders and self._holders.pop(queue_id, None) is not None:
                lost.append(queue_id)
        return lost
