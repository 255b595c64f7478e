"""How long a member may go on without hearing from the coordinator.

The coordinator gives a member's queues to others once it was silent for ``SESSION_TIMEOUT_MS``,
counted from when a heartbeat arrived; also to a process that joins under the same name. The member
counts ``LEASE_MS``, which is shorter, from when it sent the last heartbeat that was answered. So
whatever became of a member's process, whether it was stopped by a signal or cut off, a poll that
begins when another member may read the queues hands out nothing. What a poll, or a handler, was
about to do when the process was stopped, it still does when the process goes on.

Both count by clocks that never jump. They need not show the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

__all__ = ["LEASE_MS", "SESSION_TIMEOUT_MS", "Lease"]

_LOG = logging.getLogger(__name__)
SESSION_TIMEOUT_MS = 10_000
LEASE_MS = 8_000


class Lease:
    """One member's leave to hand out messages. Any thread may ask; one renews."""

    def __init__(self, clock_ms: Callable[[], int], member: str = "") -> None:
        """*member* is what the log calls it."""
        self._clock_ms = clock_ms
        self._member = member
        self._was_running = True
        self._end_ms = clock_ms()

    @property
    def is_running(self) -> bool:
        """Nobody else can have been given the member's queues."""
        return self.left_ms > 0

    def may_hand_out(self) -> bool:
        """Whether it runs; says in the log when that changed since the last call."""
        is_running = self.is_running
        if is_running != self._was_running:
            self._was_running = is_running
            if is_running:
                _LOG.warning("%s goes on: the coordinator answers again", self._member)
            else:
                _LOG.warning(
                    "%s hands out nothing: the coordinator did not answer for %d s, and others "
                    "may own its queues by now", self._member, LEASE_MS // 1000,
                )  # fmt: skip
        return is_running

    def asked_at(self) -> int:
        """The time for :meth:`renew`, to be taken before the heartbeat is sent."""
        return self._clock_ms()

    @property
    def left_ms(self) -> int:
        """How long it runs on; not positive when it ran out."""
        return self._end_ms - self._clock_ms()

    def renew(self, asked_ms: int, granted_ms: int = LEASE_MS) -> None:
        """What was asked after *asked_ms* was answered, which is worth *granted_ms*."""
        self._end_ms = asked_ms + granted_ms
