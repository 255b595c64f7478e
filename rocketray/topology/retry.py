"""A handler that fails on a message: counted, logged with its place, and tried again after a pause.

The message stays in its inbox, so it comes again as soon as the pause is over. The pause doubles
with every failure in a row at one place, so a message that can never succeed costs little.
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
    """Seconds to wait after *attempts* failures in a row: doubled each time, at most 30."""
    doublings = min(max(attempts, 1) - 1, _MAX_DOUBLINGS)
    return min(FIRST_DELAY_S * 2.0**doublings, MAX_DELAY_S)


def note_failure(who: str, error: BaseException, inbox: Inbox | None) -> float:
    """Count and log a failure of *who*; seconds to wait before the next attempt.

    The traceback is logged once per place, at the first attempt.
    """
    attempts = 1 if inbox is None else inbox.note_failure()
    delay = backoff_s(attempts)
    logger.error(
        "%s failed %s, attempt %d, again in %.2f s: %r",
        who,
        "outside of a message" if inbox is None else inbox.place(),
        attempts,
        delay,
        error,
        exc_info=error if attempts == 1 else None,
    )
    return delay
