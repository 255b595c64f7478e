"""How long a member may go on without hearing from the coordinator.

The coordinator gives a member's queues to others once it was silent for ``SESSION_TIMEOUT_MS``,
counted from when a heartbeat arrived. The member counts ``LEASE_MS``, which is shorter, from when
it sent the last heartbeat that was answered. So whatever became of a member's process, whether it
was stopped by a signal or cut off, it hands out nothing any more when another one begins.

Both count by clocks that never jump. They need not show the same time.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["LEASE_MS", "SESSION_TIMEOUT_MS", "Lease"]

SESSION_TIMEOUT_MS = 10_000
LEASE_MS = 8_000


class Lease:
    """One member's leave to hand out messages. Any thread may ask; one renews."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._end_ms = clock_ms()

    @property
    def is_running(self) -> bool:
        """Nobody else can have been given the member's queues."""
        return self.left_ms > 0

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
