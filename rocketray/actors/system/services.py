"""System services: the node's periodic work on its system topics, in the shared process.

A service is a plain object with one method, which does the work that is due and returns when to be
called next. It is called earlier when the process gets messages, so it may sleep for long.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

__all__ = ["RETRY_AFTER_MS", "Service", "ServiceThread", "step_each"]

_LOG = logging.getLogger(__name__)
RETRY_AFTER_MS = 1000
_IDLE_MS = 60_000
_LOOK_S = 1.0  # services read the clock again: it may have been set


class Service(Protocol):
    """A service: delivery of delayed messages, transaction checks, compaction."""

    def step(self, now_ms: int) -> int:
        """Do the work due at *now_ms*; return the time of the next call, in ms since 1970."""


def step_each(services: Iterable[Service], now_ms: int) -> int:
    """Call each service; return the next time. A failed service is called again after 1 s."""
    wakeups = [now_ms + _IDLE_MS]
    for service in services:
        try:
            wakeups.append(service.step(now_ms))
        except Exception:  # noqa: BLE001 - one service does not stop the others
            _LOG.exception("%s failed; trying again", type(service).__name__)
            wakeups.append(now_ms + RETRY_AFTER_MS)
    return min(wakeups)


class ServiceThread:
    """The thread that calls the services of a process, until :meth:`stop`."""

    def __init__(self, step: Callable[[int], int], clock_ms: Callable[[], int]) -> None:
        self._step = step
        self._clock_ms = clock_ms
        self._is_stopped = False
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="services", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Call the services soon: there may be a message for them."""
        self._woken.set()

    def stop(self) -> None:
        """End the thread; return when it has finished its current work."""
        self._is_stopped = True
        self._woken.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._is_stopped:
            self._woken.clear()
            wakeup_ms = self._step(self._clock_ms())
            wait_s = (wakeup_ms - self._clock_ms()) / 1000
            if not self._is_stopped:
                self._woken.wait(min(max(wait_s, 0), _LOOK_S))
