"""The process's own signal handlers: for an orderly end, and restored after Ray replaced them.

A process that joins Ray gets a C handler for SIGTERM before Python's. It prints stacks, calls
Python's handler, and aborts the process three seconds later, during an orderly stop.

If the process leaves Ray, SIGTERM has the system's handler. A thread cannot restore that of Python,
but it can keep the C handler that there was.

Ctrl-C during ``ray.init`` leaves Ray processes behind, or crashes this process.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SIGACTION_MAX_BYTES = 512  # struct sigaction has 152 in glibc on x86-64, and 16 on macOS
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def restore_signal_handlers() -> None:
    """Restore Python's handler of SIGTERM; does nothing outside the main thread."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
        # A system call continues after the handler, as asyncio has it.
        signal.siginterrupt(signal.SIGTERM, False)  # noqa: FBT003 - it takes no keyword


@contextmanager
def same_handler_behind() -> Iterator[None]:
    """Let SIGTERM have the handler behind the block that it has before it, in any thread."""
    sigaction = ctypes.CDLL(None).sigaction
    before = ctypes.create_string_buffer(_SIGACTION_MAX_BYTES)
    sigaction(signal.SIGTERM, None, before)
    try:
        yield
    finally:
        sigaction(signal.SIGTERM, before, None)


@contextmanager
def interrupted_behind() -> Iterator[None]:
    """Raise a Ctrl-C's ``KeyboardInterrupt`` after the block; a second one ends the process.

    This has an effect only in the main thread, and if the process has Python's own handler.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came = threading.Event()

    def note(*_: object) -> None:
        # The second Ctrl-C ends the process: Ray may keep the block busy for minutes.
        came.set()
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came.is_set():
        raise KeyboardInterrupt


class StopSignals:
    """The event that the first SIGINT or SIGTERM sets; a second one ends the process."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def take_back(self) -> None:
        """Install the handlers, again if others have replaced them.

        A Spark session does so with SIGINT's: its own cancels all jobs and raises KeyboardInterrupt
        wherever the main thread is, which is pages of stack traces for a Ctrl-C.
        """
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL if self.event.is_set() else self._note)

    def _note(self, number: int, _frame: object) -> None:
        self.event.set()
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Handle both signals, and restore the old handlers at the end; only the main thread can."""
    before = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
    taken = StopSignals()
    taken.take_back()
    try:
        yield taken
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
