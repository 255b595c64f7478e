"""The holders of an app's queue numbers, and so of the parts of its tables."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol


class PartHolder(Hashable, Protocol):
    """A reader of queues, whose messages change the parts of tables."""

    @property
    def is_leased(self) -> bool:
        """Whether no other instance can read its queues."""

    def epoch(self, queue_id: int) -> int:
        """Return the ownership epoch of a queue that it reads."""

    def give_up(self, queue_id: int, newest_epoch: int) -> None:
        """Read, deliver and commit no more of a queue, and release it soon.

        *newest_epoch* is the owner's that the changelog knows, 0 if it did not say.
        """


class QueueHolders:
    """The holders of each queue number in this process, which are members of its groups.

    A table has a part for every queue number, and a part has one owner. All agents of an instance
    own the same numbers (see the groups' co-assignment), but queues are assigned and revoked member
    by member: the instance owns the part from the first member that gains the number until the last
    that loses it.
    """

    def __init__(self) -> None:
        self._holders: dict[int, set[PartHolder]] = {}

    def owned(self) -> list[int]:
        """Return the queue numbers that have a holder."""
        return sorted(self._holders)

    def holders(self, queue_id: int | None = None) -> set[PartHolder]:
        if queue_id is not None:
            return set(self._holders.get(queue_id, ()))
        return {one for holders in self._holders.values() for one in holders}

    def epoch(self, queue_id: int) -> int:
        """Return the newest ownership epoch that a holder has of a queue number."""
        # The grants of different groups are comparable: one counter numbers all of them.
        return max((one.epoch(queue_id) for one in self.holders(queue_id)), default=0)

    def hold(self, holder: PartHolder, queue_ids: Iterable[int]) -> None:
        """Note that *holder* reads *queue_ids* from now on, also if it did so before."""
        for queue_id in queue_ids:
            self._holders.setdefault(queue_id, set()).add(holder)

    def release(self, holder: PartHolder, queue_ids: Iterable[int]) -> set[int]:
        """Remove *holder* from *queue_ids*; return those that have no holder any more."""
        for queue_id in queue_ids:
            self._holders.get(queue_id, set()).discard(holder)
        lost = {queue_id for queue_id, holders in self._holders.items() if not holders}
        for queue_id in lost:
            del self._holders[queue_id]
        return lost
