"""Periodic tasks, each in its own thread: those of an actor, and the news of a long wait.

If an error ended such a thread, its actor would look healthy, while offsets would not be saved any
more, or old files would stay. So an error is logged, and the task runs again at its next time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOG = logging.getLogger(__name__)


def start_periodic_task(
    name: str,
    every_s: float,
    stop: threading.Event,
    work: Callable[[], object],
    *,
    at_once: bool = False,
) -> threading.Thread:
    """Run *work* every *every_s* seconds, and first *at_once*, until *stop* is set."""

    def run() -> None:
        is_over = not at_once and stop.wait(every_s)
        while not is_over:
            try:
                work()
            except Exception:  # noqa: BLE001  # whatever it was, the next time counts
                _LOG.exception("%s failed; trying again in %g s", name, every_s)
            is_over = stop.wait(every_s)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


@contextmanager
def telling(tell: Callable[[float], object], every_s: float) -> Iterator[None]:
    """Call *tell* each *every_s* until the block is left, with the seconds since it was entered."""
    begun_s, is_over = time.monotonic(), threading.Event()
    teller = start_periodic_task(
        "waiting", every_s, is_over, lambda: tell(time.monotonic() - begun_s)
    )
    try:
        yield
    finally:
        is_over.set()
        teller.join()
