"""Log lines of a wait: what takes long says so, again and again, until it is over."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager

from .periodic import telling

logger = logging.getLogger(__name__)
_AGAIN_S = 5.0  # a wait that takes less logs nothing


def logged_wait(what: str) -> AbstractContextManager[None]:
    """Log that *what* is still so, and for how long, until the block is left."""
    return telling(lambda seconds: logger.info("%s, for %.0f s now", what, seconds), _AGAIN_S)
