"""The result of an asynchronous send."""

from __future__ import annotations

from collections.abc import Callable

from .batch import Batch, SendResult
from .queue_link import QueueLink

__all__ = ["PendingSend"]

Settle = Callable[[QueueLink, Batch, float | None], None]
"""Waits until the outcome of a link's batch is known, for some seconds at most."""


class PendingSend:
    """A message that was sent and is not yet known to be stored."""

    __slots__ = ("_batch", "_index", "_link", "_settle")

    def __init__(self, settle: Settle, link: QueueLink, batch: Batch, index: int) -> None:
        self._settle = settle
        self._link = link
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Return whether :meth:`result` would return at once; makes no call and never waits."""
        if not self._batch.settled and self._link.lock.acquire(blocking=False):
            try:
                self._link.harvest()
            finally:
                self._link.lock.release()
        return self._batch.settled

    def result(self, timeout_s: float | None = None) -> SendResult:
        """Wait until the message is stored.

        Raises:
            ShardUnavailableError: it is not yet known; the message may still be stored later.
            StreamError: the shard refused it, and nothing was stored.
        """
        if not self._batch.settled:
            self._settle(self._link, self._batch, timeout_s)
        return self._batch.result(self._index)
