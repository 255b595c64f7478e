"""Whether the coordinator's own process stood still: was stopped, swapped out, or suspended.

No heartbeat can arrive meanwhile, so members are not silent for that time. Else the first one whose
heartbeat comes afterwards would get the queues of all others, though these live, and what they had
finished last would be delivered again.
"""

from __future__ import annotations

from collections.abc import Callable

LOOK_EVERY_S = 0.5
"""How often :meth:`StallWatch.stalled_ms` is called at least, once the watch has begun."""
# A busy machine wakes a thread late by some tenths of a second, and members report each second.
_STALL_MS = 2000


class StallWatch:
    """The gaps between the looks of one process at its clock; the caller has the lock."""

    def __init__(self, steady_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        self._looked_ms: int | None = None

    def begin(self) -> None:
        """Count from now on, unless it does already: without a regular look nothing is a stall."""
        if self._looked_ms is None:
            self._looked_ms = self._steady_ms()

    def stalled_ms(self) -> int:
        """Return for how long the process stood still since the last look; 0 if it did not."""
        if self._looked_ms is None:
            return 0
        before, self._looked_ms = self._looked_ms, self._steady_ms()
        gap_ms = self._looked_ms - before
        return gap_ms if gap_ms > _STALL_MS else 0
