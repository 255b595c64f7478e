"""One thread of a producer that reports outcomes: to tasks that await them, and to callbacks.

It starts with the first of them. It sleeps until the shard acknowledges the newest batch that is
watched, and then looks at all: the older ones are acknowledged by then, unless their shard is
behind. So a shard that does not answer delays no report of another one by more than ``_LOOK_S``.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .batch import Batch
from .queue_link import QueueLink

_LOG = logging.getLogger(__name__)
# The newest batch's acknowledgement ends the wait; this is the delay of reports for other shards.
_LOOK_S = 0.002
_UNSENT_S = 0.0005  # until a batch that is still collected is looked at again


class OutcomeWatch:
    """The batches of a producer with a callback instead of a waiting thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: dict[Batch, _Watched] = {}
        self._thread: threading.Thread | None = None
        self.is_closed = False
        """Whether callbacks are called at once, as the producer is closed."""

    def is_watched(self, batch: Batch) -> bool:
        return batch in self._watched

    def call_back(self, link: QueueLink, batch: Batch, callback: Callable[[], object]) -> None:
        """Have *callback* called in the thread once the outcome is known, or this is closed."""
        with self._changed:
            if not batch.settled and not self.is_closed:
                self._watch(link, batch).callbacks.append(callback)
                return
        call_logged(callback)

    async def wait(self, link: QueueLink, batch: Batch, timeout_s: float) -> None:
        """Wait until the outcome is known, or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            waiter: asyncio.Future[None] = loop.create_future()
            with self._changed:
                if batch.settled or self.is_closed:
                    return
                watched = self._watch(link, batch)
                watched.waiters.setdefault(loop, []).append(waiter)
                watched.deadline = min(watched.deadline, deadline)
            await waiter  # also when the time of another task is over

    def close(self) -> None:
        """End the thread; those that still wait are told, and find that the outcome is unknown."""
        with self._changed:
            self.is_closed = True
            self._changed.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _watch(self, link: QueueLink, batch: Batch) -> _Watched:
        """Return the record of a watched batch; called with the lock held."""
        watched = self._watched.get(batch)
        if watched is None:
            if self._thread is None:
                thread = threading.Thread(target=self._run, daemon=True, name="outcomes")
                thread.start()  # first: if it cannot be started, the next caller tries it again
                self._thread = thread
            watched = self._watched[batch] = _Watched(link)
            self._changed.notify()
        return watched

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._watched and not self.is_closed:
                    self._changed.wait()
                pending = list(self._watched.items())
                is_closed = self.is_closed
            if not is_closed:
                batch, watched = pending[-1]
                if batch.sequence or batch.settled:
                    watched.link.wait(batch, _LOOK_S)
                else:
                    time.sleep(_UNSENT_S)
            self._report(pending, is_closed=is_closed)
            if is_closed:
                return

    def _report(self, pending: Sequence[tuple[Batch, _Watched]], *, is_closed: bool) -> None:
        """Report the outcomes that are known, and to tasks also that their time is over."""
        now = time.monotonic()
        waiters: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        callbacks: list[Callable[[], object]] = []
        for batch, watched in pending:
            is_over = watched.link.look(batch) or is_closed
            if not is_over and now < watched.deadline:
                continue
            with self._changed:
                if is_over:
                    del self._watched[batch]
                    callbacks += watched.callbacks
                ended, watched.waiters, watched.deadline = watched.waiters, {}, float("inf")
                if not is_over and not watched.callbacks:
                    del self._watched[batch]
            for loop, those in ended.items():
                waiters.setdefault(loop, []).extend(those)
        for loop, those in waiters.items():
            try:
                loop.call_soon_threadsafe(_wake, those)
            except RuntimeError:  # the loop is closed, and its tasks with it
                _LOG.debug("a loop was closed while %d sends were awaited", len(those))
        for callback in callbacks:
            call_logged(callback)


@dataclass(slots=True)
class _Watched:
    """Those that wait for the outcome of one batch."""

    link: QueueLink
    deadline: float = float("inf")
    """When the first of the waiting tasks has waited long enough, by the monotonic clock."""
    callbacks: list[Callable[[], object]] = field(default_factory=list)
    waiters: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = field(
        default_factory=dict
    )


def _wake(waiters: Sequence[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def call_logged(callback: Callable[[], object]) -> None:
    """Call a function of a user; what it raises is logged."""
    try:
        callback()
    except Exception:  # noqa: BLE001  # the function of a user; others are called nevertheless
        _LOG.exception("a callback of a send failed")
