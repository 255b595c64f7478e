"""The process's own signal handlers, beside what Ray makes of signals.

Who joins Ray gets a C handler for SIGTERM in front of Python's. It prints stacks, calls Python's,
and has the process aborted three seconds later, in the middle of an orderly stop.

Ctrl-C in the middle of ``ray.init`` leaves processes of Ray behind, or has this one crash.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["interrupted_behind", "restore_signal_handlers"]


def restore_signal_handlers() -> None:
    """Put Python's handler of SIGTERM back; only the main thread can, others do nothing."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
        signal.siginterrupt(signal.SIGTERM, False)  # noqa: FBT003  # as asyncio has it


@contextmanager
def interrupted_behind() -> Iterator[None]:
    """Raise the ``KeyboardInterrupt`` of a Ctrl-C in the block behind it; a second one ends at once.

    Only where the process has Python's own handler, and in the main thread.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came = threading.Event()

    def note(*_: object) -> None:
        came.set()
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came.is_set():
        raise KeyboardInterrupt
