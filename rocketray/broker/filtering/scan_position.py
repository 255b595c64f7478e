"""How far a queue was scanned, and what is scanned next: never a gap, nor what was removed."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketray.base.quantity import counted
from rocketray.runtime.ipc.control_page import ControlPage
from rocketray.store.queues.queue_gaps import NO_GAPS, QueueGaps

_LOG = logging.getLogger(__name__)
_NO_STOP = 2**63 - 1  # beyond every offset, which is an i64


class ScanPosition:
    """The place in one queue of a reader that scans it from *next_offset* on."""

    def __init__(
        self,
        control: ControlPage,
        find_gaps: Callable[[], QueueGaps],
        next_offset: int,
        *,
        stop: int | None,
        where: str,
    ) -> None:
        """Scan nothing from *stop* on, unless it is None; *where* is the queue for the log.

        *find_gaps* reads the queue's gaps from its file, now and after each recovery.
        """
        self._control = control
        self._find_gaps = find_gaps
        self._where = where
        self._stop = _NO_STOP if stop is None else stop
        self._gaps = NO_GAPS
        self._epoch = -1
        self._end = 0
        self.minimum = 0
        """The first offset that still existed at the last :meth:`skip`."""
        self.next_offset = next_offset
        """The first offset that was not scanned."""

    @property
    def is_behind(self) -> bool:
        """Whether messages were removed since the last :meth:`skip`."""
        return self._control.minimum() != self.minimum

    def skip(self) -> int:
        """Go past removed messages and a gap; return the number of the former, which are missed."""
        self.minimum = self._control.minimum()
        missed = max(self.minimum - self.next_offset, 0)
        if missed:
            _LOG.warning(
                "%s: missed %s, deleted before the filter read on",
                self._where,
                counted(missed, "message"),
            )
            self.next_offset = self.minimum
        self._end = min(self._control.visible(), self._stop)
        self._look_for_gaps()
        behind = self._gaps.after(self.next_offset)
        self.next_offset = max(min(behind, self._end), self.next_offset)
        return missed

    def jump_to(self, offset: int) -> int:
        """Continue at *offset*, further on; return the number of messages that are left out."""
        count = self._gaps.count(self.next_offset, offset)
        self.next_offset = offset
        return count

    def ahead(self) -> int:
        """Return the number of messages that can be scanned, as of the last :meth:`skip`."""
        return self._gaps.count(self.next_offset, max(self._end, self.next_offset))

    def _look_for_gaps(self) -> None:
        """Read the gaps again if a recovery may have left one; after the end was read.

        A gap is written before the epoch begins, and what is behind it is visible after that.
        """
        epoch = self._control.epoch.load()
        if epoch != self._epoch:
            self._gaps = self._find_gaps()
            self._epoch = epoch

    def window(self, limit: int) -> tuple[int, int]:
        """Return the offsets to scan next, at most *limit*: the first, and the one after the last.

        All were visible at the last :meth:`skip`, and no gap is within.
        """
        start, end = self.next_offset, self._end
        until = next((first for first, _ in self._gaps.between(start, end)), end)
        return start, min(until, start + limit)
