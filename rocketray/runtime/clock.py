"""The machine's clocks, for actors and commands; the pure objects take a clock as an argument."""

from __future__ import annotations

import time


def system_clock_ms() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def steady_clock_ms() -> int:
    """Return the ms since the machine booted; counts during suspend and is never set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
