"""A handler that fails outside of a message: counted, logged, and restarted after a pause.

The pause doubles with every consecutive failure, so a handler that can never succeed costs little.
Failures on a message are handled by failure.py.
"""

from __future__ import annotations

import logging

from .inbox import Inbox

__all__ = ["FIRST_DELAY_S", "MAX_DELAY_S", "backoff_s", "note_failure"]

logger = logging.getLogger(__name__)

FIRST_DELAY_S = 0.01
MAX_DELAY_S = 30.0
_MAX_DOUBLINGS = 12  # 0.01 s * 2**12 is over MAX_DELAY_S


def backoff_s(attempts: int) -> float:
    """Return the seconds to wait after *attempts* consecutive failures: doubling, at most 30."""
    doublings = min(max(attempts, 1) - 1, _MAX_DOUBLINGS)
    return min(FIRST_DELAY_S * 2.0**doublings, MAX_DELAY_S)


def note_failure(who: str, error: BaseException, inbox: Inbox | None) -> float:
    """Count and log a failure of *who*; return the seconds to wait before the next attempt.

    The traceback is logged at the first one.
    """
    attempts = 1 if inbox is None else inbox.note_failure()
    delay = backoff_s(attempts)
    logger.error(
        "%s failed outside of a message, attempt %d, retried in %.2f s: %r",
        who,
        attempts,
        delay,
        error,
        exc_info=error if attempts == 1 else None,
    )
    return delay
