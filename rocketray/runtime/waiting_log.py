"""Log lines of a wait: what takes long says so, again and again, until it is over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .periodic import start_periodic_task

logger = logging.getLogger(__name__)
_AGAIN_S = 5.0  # a wait that takes less logs nothing


@contextmanager
def telling(what: str, again_s: float = _AGAIN_S) -> Iterator[None]:
    """Log that *what* is still so, and for how long, until the block is left."""
    begun, is_over = time.monotonic(), threading.Event()

    def tell() -> None:
        logger.info("%s, for %.0f s now", what, time.monotonic() - begun)

    teller = start_periodic_task("waiting", again_s, is_over, tell)
    try:
        yield
    finally:
        is_over.set()
        teller.join()
