"""The steps of services: each does the work that is due, and says when it is to be called next.

A service is a plain object. New work, such as messages that were stored, has it called earlier than
it said, so it may sleep for long.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

_LOG = logging.getLogger(__name__)
RETRY_AFTER_MS = 1000
"""How soon a service is called again whose step failed."""
_IDLE_MS = 60_000  # nothing is due; new work wakes the services
_LOOK_S = 1.0  # services read the clock again: it may have been set


class Service(Protocol):
    """A service: transactions, delivery of delayed messages, staged batches."""

    def step(self, now_ms: int) -> int | None:
        """Do the work due at *now_ms*; return the time of the next call, in ms since 1970.

        None if only new work is a reason for one.
        """

    def close(self) -> None:
        """Save the progress, and release everything."""


class SteppedServices:
    """The services of a process: by steps, or with :meth:`start` in a thread."""

    def __init__(self, name: str, clock_ms: Callable[[], int]) -> None:
        """Take the *name* of the thread; *clock_ms* is a wall clock."""
        self.stepped: tuple[Service, ...] = ()
        """The services, set before the first step: they may need :meth:`wake`."""
        self._clock_ms = clock_ms
        self._is_closed = False
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._keep_stepping, name=name, daemon=True)

    def step(self, now_ms: int) -> int:
        """Call each service; return the next time. A failed service is called again after 1 s."""
        wakeup_ms = now_ms + _IDLE_MS
        for service in self.stepped:
            try:
                next_ms = service.step(now_ms)
            except Exception:  # noqa: BLE001 - one service does not stop the others
                _LOG.exception("%s failed; trying again", type(service).__name__)
                next_ms = now_ms + RETRY_AFTER_MS
            if next_ms is not None:
                wakeup_ms = min(wakeup_ms, next_ms)
        return wakeup_ms

    def start(self) -> None:
        """Call the services in a thread from now on, until :meth:`close`."""
        self._thread.start()

    def wake(self) -> None:
        """Call the services soon: there is new work."""
        self._woken.set()

    def close(self) -> None:
        """End the thread when its step has ended, then close the services."""
        self._is_closed = True
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()
        for service in self.stepped:
            service.close()

    def _keep_stepping(self) -> None:
        while not self._is_closed:
            self._woken.clear()
            wakeup_ms = self.step(self._clock_ms())
            wait_s = (wakeup_ms - self._clock_ms()) / 1000
            if not self._is_closed:
                self._woken.wait(min(max(wait_s, 0), _LOOK_S))
