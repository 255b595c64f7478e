"""The machine's clock, for the shells; the cores below take a clock as an argument."""

from __future__ import annotations

import time

__all__ = ["system_clock_ms"]


def system_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
