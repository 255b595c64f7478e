"""What waits on the shards' node for a member on another one: frames, and queues to give up.

A frame is the packed messages of one queue. The member takes all that waits in one reply, and says
with its next poll which reply it got.

Invariants
  1. Each frame is in one reply, in the order in which it came; a reply that did not arrive is given
     once more, the same.
  2. A revocation drops the frames of its queues that are in no reply, and the next reply names it,
     however many frames wait. No reply has frames from before the revocation that it names.
  3. A revocation is over when the member answers it, or is dropped; what is answered to an earlier
     one does not count.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

__all__ = ["Backlog", "Revocation", "Taken"]

FRAMES_MAX = 4
_REPLY_BYTES = 4 * 1024 * 1024


class Revocation(NamedTuple):
    """The queues that the member has to give up, and which time this is; none when it has none."""

    number: int
    queue_ids: frozenset[int]


class Taken(NamedTuple):
    """The content of a reply."""

    number: int
    frames: list[bytes]
    revocation: Revocation


class Backlog:
    """One thread puts and revokes, one at a time takes; any may call the others."""

    def __init__(self) -> None:
        self._frames: deque[tuple[int, bytes]] = deque()
        self._revocation = Revocation(0, frozenset())
        self._is_told = True  # of the revocation
        self._taken = Taken(0, [], self._revocation)
        self._is_closed = False
        self._changed = threading.Condition()

    def wait_for_room(self, timeout_s: float) -> bool:
        """Whether another frame may be put, now or within *timeout_s*."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._frames) < FRAMES_MAX, timeout_s)

    def put(self, queue_id: int, frame: bytes) -> None:
        """Let a frame wait; there has to be room."""
        with self._changed:
            assert len(self._frames) < FRAMES_MAX
            self._frames.append((queue_id, frame))
            self._changed.notify_all()

    def take(self, received: int, timeout_s: float) -> Taken:
        """The next reply, once there is something or the time is over.

        When the member did not get the last one, as it has *received* another, that one again.
        """
        with self._changed:
            if received == self._taken.number:
                self._changed.wait_for(self._has_news, timeout_s)
                self._taken = self._next()
                self._changed.notify_all()
            return self._taken

    def revoke(self, queue_ids: frozenset[int]) -> None:
        """Have the member give queues up."""
        with self._changed:
            kept = [
                (queue_id, frame) for queue_id, frame in self._frames if queue_id not in queue_ids
            ]
            self._frames = deque(kept)
            self._revocation = Revocation(self._revocation.number + 1, queue_ids)
            self._is_told = False
            self._changed.notify_all()

    @property
    def revocation(self) -> Revocation:
        """What the member has to give up now."""
        return self._revocation

    def given_up(self, number: int) -> None:
        """The member gave up what it was told to in revocation *number*."""
        with self._changed:
            if number == self._revocation.number:
                self._end_revocation()

    def wait_until_given_up(self, timeout_s: float) -> bool:
        """Whether the member gave up what was revoked in time; if not, that is not heard later."""
        with self._changed:
            is_over = self._changed.wait_for(
                lambda: self._is_closed or not self._revocation.queue_ids, timeout_s
            )
            self._end_revocation()
            return is_over

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _end_revocation(self) -> None:
        self._revocation = Revocation(self._revocation.number, frozenset())
        self._is_told = True
        self._changed.notify_all()

    def _has_news(self) -> bool:
        return bool(self._frames) or not self._is_told or self._is_closed

    def _next(self) -> Taken:
        frames: list[bytes] = []
        size = 0
        while self._frames and size < _REPLY_BYTES:
            frames.append(self._frames.popleft()[1])
            size += len(frames[-1])
        self._is_told = True
        return Taken(self._taken.number + 1, frames, self._revocation)
