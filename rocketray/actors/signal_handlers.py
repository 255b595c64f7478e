"""The process's own signal handlers, kept while Ray is joined.

Who joins Ray gets a C handler for SIGTERM in front of Python's. It prints stacks, calls Python's,
and has the process aborted three seconds later, in the middle of an orderly stop.
"""

from __future__ import annotations

import signal
import threading

__all__ = ["restore_signal_handlers"]


def restore_signal_handlers() -> None:
    """Put Python's handler of SIGTERM back; only the main thread can, others do nothing."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
        signal.siginterrupt(signal.SIGTERM, False)  # noqa: FBT003  # as asyncio has it
