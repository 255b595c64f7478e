"""A log that says little for a while: histories provoke what would be told thousands of times."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_log() -> Iterator[None]:
    """Nothing below CRITICAL in the block; then all as before, for other tests read the log."""
    log = logging.getLogger("rocketray")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
