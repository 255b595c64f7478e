"""A line on stderr every 15 seconds while a command waits for a silent call.

Ray starts and is joined in one call, which takes a minute or two on a busy machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rocketray.runtime.periodic import start_periodic_task

from .output import progress

AGAIN_S = 15.0


@contextmanager
def waiting(what: str, again_s: float = AGAIN_S) -> Iterator[None]:
    """Print that *what* is still running, and for how long, until the block is left."""
    begun, is_over = time.monotonic(), threading.Event()

    def tell() -> None:
        progress(f"still {what}, for {time.monotonic() - begun:.0f} s now")

    teller = start_periodic_task("waiting", again_s, is_over, tell)
    try:
        yield
    finally:
        is_over.set()
        teller.join()
