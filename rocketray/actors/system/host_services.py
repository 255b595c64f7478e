"""Services of the shard host: the node's periodic work on its system topics.

A service is a plain object with one method, which does the work that is due and returns when to be
called next. It is called earlier when a hosted topic gets messages, so it may sleep for long.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

__all__ = ["RETRY_AFTER_MS", "Service", "Services"]

_LOG = logging.getLogger(__name__)
RETRY_AFTER_MS = 1000
_IDLE_MS = 60_000


class Service(Protocol):
    """A service: delivery of delayed messages, transaction checks, compaction."""

    def step(self, now_ms: int) -> int:
        """Do the work due at *now_ms*; return the time of the next call, in ms since 1970."""


class Services:
    """The services of one host, called in turn by one thread."""

    def __init__(self, services: Sequence[Service] = ()) -> None:
        self._services = list(services)

    def add(self, service: Service) -> None:
        """Begin to call *service*."""
        self._services.append(service)

    def step(self, now_ms: int) -> int:
        """Call each service; return the next time. A failed service is called again after 1 s."""
        wakeups = [now_ms + _IDLE_MS]
        for service in list(self._services):
            try:
                wakeups.append(service.step(now_ms))
            except Exception:  # noqa: BLE001 - one service does not stop the others
                _LOG.exception("%s failed; trying again", type(service).__name__)
                wakeups.append(now_ms + RETRY_AFTER_MS)
        return min(wakeups)
