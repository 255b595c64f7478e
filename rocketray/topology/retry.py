"""How long a message waits before a handler that failed on it gets it again."""

from __future__ import annotations

__all__ = ["FIRST_DELAY_S", "MAX_DELAY_S", "backoff_s"]

FIRST_DELAY_S = 0.01
MAX_DELAY_S = 30.0
_MAX_DOUBLINGS = 12  # 0.01 s * 2**12 is over MAX_DELAY_S


def backoff_s(attempts: int) -> float:
    """Seconds to wait after *attempts* failures in a row: doubled each time, at most 30."""
    doublings = min(max(attempts, 1) - 1, _MAX_DOUBLINGS)
    return min(FIRST_DELAY_S * 2.0**doublings, MAX_DELAY_S)
