"""The clock of a process by which it judges ages: a step of the wall clock makes nothing older.

Pure: it reads a wall clock, which an operator or a time service may set at any moment, and a steady
clock, which only counts. Between them it keeps the smallest difference that it has seen; added to
the steady clock, that is the *earliest time* that it can be.

Invariants
  1. Nothing that got its store time from this clock is taken for older than it is, whatever the
     wall clock is set to: the earliest time runs no faster than the steady clock, and no store time
     was earlier than it.
  2. The age of anything grows while this process sees it, also if its store time is in the future.
  3. Store times of earlier processes, which share no steady clock with this one, count only when
     it has run for :data:`SETTLING_MS`, and by the earliest time in all of its run. So a clock that
     is wrong when a machine boots makes nothing old if it is corrected within that time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

SETTLING_MS = 600_000  # time services step a wrong clock within the first minutes of their run


class AgeClock:
    """A wall clock that also tells ages; safe in any thread."""

    def __init__(
        self,
        wall_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        *,
        settling_ms: int = SETTLING_MS,
    ) -> None:
        """Take two clocks; store times count as ages only after *settling_ms*."""
        self._wall_ms = wall_ms
        self._steady_ms = steady_ms
        self._lock = threading.Lock()
        begun_ms = steady_ms()
        self._settled_ms = begun_ms + settling_ms
        self._ahead_ms = wall_ms() - begun_ms  # of the steady clock; the least until now

    @classmethod
    def of(cls, clock_ms: Callable[[], int]) -> Self:
        """Return *clock_ms* itself if it is one, else one that trusts it: ages follow its steps."""
        return clock_ms if isinstance(clock_ms, cls) else cls(clock_ms, clock_ms, settling_ms=0)

    def __call__(self) -> int:
        """Return the wall clock's time; all store times are to come from here."""
        # Steady first: a process that is stopped between the two then has a difference that is too
        # large, and drops it. In the other order it would be too small, and kept for good.
        steady_ms, wall_ms = self._steady_ms(), self._wall_ms()
        if wall_ms - steady_ms < self._ahead_ms:
            with self._lock:
                self._ahead_ms = min(self._ahead_ms, wall_ms - steady_ms)
        return wall_ms

    def steady_ms(self) -> int:
        """Return the steady clock's time, and notice whether the wall clock was set back."""
        self()
        return self._steady_ms()

    def age_ms(self, stored_ms: int, seen_ms: int, now_ms: int) -> int:
        """Return the age of what was stored at *stored_ms*, by the wall clock.

        *seen_ms*, when this process first saw it, and *now_ms* are by the steady clock.
        """
        seen_for_ms = now_ms - seen_ms
        if now_ms < self._settled_ms:
            return seen_for_ms
        return max(seen_for_ms, now_ms + self._ahead_ms - stored_ms)
