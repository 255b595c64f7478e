"""Which queue numbers an instance of an app owns, as far as its tables are concerned.

A table has a part for every queue number, and a part has one owner. All agents of an instance own
the same numbers (see the groups' co-assignment), but their members get and give them one by one:
the part is theirs from the first that has the number until the last has given it up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

__all__ = ["QueueOwnership"]


class QueueOwnership:
    """Who in this process holds which queue number."""

    def __init__(self) -> None:
        self._holders: dict[int, set[Hashable]] = {}

    def owned(self) -> list[int]:
        """The queue numbers that somebody holds."""
        return sorted(self._holders)

    def hold(self, holder: Hashable, queue_ids: Iterable[int]) -> list[int]:
        """*holder* has *queue_ids* now; returns those that nobody here had before."""
        gained = []
        for queue_id in queue_ids:
            if queue_id not in self._holders:
                gained.append(queue_id)
            self._holders.setdefault(queue_id, set()).add(holder)
        return gained

    def release(self, holder: Hashable, queue_ids: Iterable[int]) -> list[int]:
        """*holder* has them no more; returns those that nobody here has any more."""
        lost = []
        for queue_id in queue_ids:
            holders = self._holders.get(queue_id, set())
            holders.discard(holder)
            if not holders and self._holders.pop(queue_id, None) is not None:
                lost.append(queue_id)
        return lost
