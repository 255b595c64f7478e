"""SIGINT and SIGTERM as a request to end, while Spark runs in this process.

A Spark session replaces SIGINT's handler by its own, which cancels all jobs and raises
KeyboardInterrupt wherever the main thread is: pages of stack traces for a Ctrl-C. Here the first
signal sets an event, and the waiting thread ends the queries in order; a second one ends the
process by the default action.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["StopSignals", "stop_signals"]

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """The event that is set, and the handlers that set it."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def take_back(self) -> None:
        """Install the handlers, again if another handler has replaced them."""
        for number in _NUMBERS:
            signal.signal(number, signal.SIG_DFL if self.event.is_set() else self._note)

    def _note(self, number: int, _frame: object) -> None:
        self.event.set()
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Handle both signals, and restore the old handlers at the end; only the main thread can."""
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    taken = StopSignals()
    taken.take_back()
    try:
        yield taken
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
