"""The backlog of a remote member on the shards' node: waiting frames, and queues to release.

A frame has the packed messages of one queue. The member takes all that waits in one reply, and
names with its next poll the last reply that it received.

Invariants
  1. Each frame is in one reply, in the order of arrival. A lost reply is sent again unchanged.
  2. A revocation drops the frames of its queues that are in no reply. The next reply names it,
     however many frames wait. No reply has frames from before the revocation that it names.
  3. A revocation is over when the member confirms it, or it is dropped. The confirmation of an
     earlier one does not count.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

__all__ = ["Backlog", "Revocation", "Taken"]

FRAMES_MAX = 4
_REPLY_BYTES = 4 * 1024 * 1024


class Revocation(NamedTuple):
    """The queues that the member has to release, and the revocation's number; none when empty."""

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
        """Return whether another frame may be put, now or within *timeout_s*."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._frames) < FRAMES_MAX, timeout_s)

    def put(self, queue_id: int, frame: bytes) -> None:
        """Add a frame; there has to be room."""
        with self._changed:
            assert len(self._frames) < FRAMES_MAX
            self._frames.append((queue_id, frame))
            self._changed.notify_all()

    def take(self, received: int, timeout_s: float) -> Taken:
        """Return the next reply, once it has content or *timeout_s* is over.

        Return the last reply again if the member has *received* another one, so did not get it.
        """
        with self._changed:
            if received == self._taken.number:
                self._changed.wait_for(self._has_news, timeout_s)
                self._taken = self._next()
                self._changed.notify_all()
            return self._taken

    def revoke(self, queue_ids: frozenset[int]) -> None:
        """Ask the member to release queues."""
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
        """The queues that the member has to release now."""
        return self._revocation

    def given_up(self, number: int) -> None:
        """Note that the member released the queues of revocation *number*."""
        with self._changed:
            if number == self._revocation.number:
                self._end_revocation()

    def wait_until_given_up(self, timeout_s: float) -> bool:
        """Return whether the member confirmed the revocation in time; end the revocation if not."""
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
