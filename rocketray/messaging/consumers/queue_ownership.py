"""The ownership epochs of the queues that a member reads (groups/ownership_epochs.py)."""

from __future__ import annotations

from collections.abc import Callable

from .member_session import MemberSession


class QueueOwnership:
    """What a member tells of its grants, to who stores on behalf of a queue; for any thread."""

    def __init__(self, session: MemberSession, wake: Callable[[], None]) -> None:
        """Tell of the grants in *session*; *wake* has a waiting poll look again."""
        self._session = session
        self._wake = wake

    def epoch(self, queue_id: int) -> int:
        """Return the ownership epoch of a queue that the member reads; 0 if it has none."""
        return self._session.epoch(queue_id)

    def give_up(self, queue_id: int, newest_epoch: int = 0) -> None:
        """Release a queue with the next poll: a store refused its epoch, as that of a former owner.

        The member may own it again later. *newest_epoch* is what the store knows, if it said so.
        """
        self._session.give_up(queue_id, newest_epoch)
        self._wake()
