"""The lease of a member: how long it may deliver messages without a reply of the coordinator.

The coordinator revokes a member's queues after ``SESSION_TIMEOUT_MS`` of silence, counted from
the arrival of its last heartbeat. This also applies to a process that joins under the same name.
The member counts the shorter ``LEASE_MS`` from when it sent the last heartbeat that was answered.

Invariants
  1. A poll that begins when another member may read the queues delivers nothing, also after the
     member's process was stopped by a signal or cut off.
  2. A poll or a handler that was already running when the process was stopped runs to completion
     when the process resumes.
  3. Both sides use monotonic clocks, which need not show the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

_LOG = logging.getLogger(__name__)
SESSION_TIMEOUT_MS = 10_000  # ten heartbeats; RocketMQ's broker closes a channel after 120 s
# Less, and from an earlier moment: what a poll or a handler began under the lease has 2 s at least
# until another member may read the queue.
LEASE_MS = 8_000


class Lease:
    """The right of one member to deliver messages. Any thread may read it; one thread renews it."""

    def __init__(self, clock_ms: Callable[[], int], member: str = "") -> None:
        """Create an expired lease; *member* is the member's name in the log."""
        self._clock_ms = clock_ms
        self._member = member
        self._was_running = True
        self._end_ms = clock_ms()

    @property
    def is_running(self) -> bool:
        """Whether no other member can have been assigned the member's queues."""
        return self.left_ms > 0

    def may_hand_out(self) -> bool:
        """Return whether the lease is running, and log a change since the last call."""
        is_running = self.is_running
        if is_running != self._was_running:
            self._was_running = is_running
            if is_running:
                _LOG.warning("%s resumes: the coordinator answers again", self._member)
            else:
                _LOG.warning(
                    "%s pauses delivery: the coordinator did not answer for %d s, and its queues "
                    "may have other owners by now",
                    self._member,
                    LEASE_MS // 1000,
                )
        return is_running

    def asked_at(self) -> int:
        """Return the time to pass to :meth:`renew`; to be taken before the heartbeat is sent."""
        return self._clock_ms()

    @property
    def left_ms(self) -> int:
        """The time until the lease expires; zero or negative when it has expired."""
        return self._end_ms - self._clock_ms()

    def renew(self, asked_ms: int, granted_ms: int = LEASE_MS) -> None:
        """Extend the lease to *granted_ms* after *asked_ms*, the time the heartbeat was sent."""
        self._end_ms = asked_ms + granted_ms
