"""The machine's clocks, for the shells; the cores below take a clock as an argument."""

from __future__ import annotations

import time

__all__ = ["steady_clock_ms", "system_clock_ms"]


def system_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def steady_clock_ms() -> int:
    """Milliseconds since the machine started; goes on while it sleeps, and is never set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
