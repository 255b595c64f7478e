"""An orderly end on SIGINT and SIGTERM: the signal is recorded, the command checks it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["until_signalled"]


@contextmanager
def until_signalled() -> Iterator[threading.Event]:
    """Return an event that the first SIGINT or SIGTERM sets; a second one ends the process."""
    signalled = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def note(number: int, _frame: object) -> None:
        signalled.set()
        signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        signal.signal(number, note)
    try:
        yield signalled
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
