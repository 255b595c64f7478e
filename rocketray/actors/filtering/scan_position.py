"""How far a queue was scanned, and what is scanned next: never a gap, nor what was removed."""

from __future__ import annotations

import logging

from rocketray.actors.ipc.control_page import ControlPage
from rocketray.store.reading.reader import QueueReader

__all__ = ["ScanPosition"]

_LOG = logging.getLogger(__name__)
_NO_STOP = 2**63 - 1


class ScanPosition:
    """The place in one queue of a reader that scans it from *next_offset* on."""

    def __init__(
        self,
        control: ControlPage,
        reader: QueueReader,
        next_offset: int,
        *,
        stop: int | None,
        where: str,
    ) -> None:
        """Scan nothing from *stop* on, unless it is None; *where* is the queue for the log."""
        self._control = control
        self._reader = reader
        self._where = where
        self._stop = _NO_STOP if stop is None else stop
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
            _LOG.warning("%s: %d messages were deleted before they were read", self._where, missed)
            self.next_offset = self.minimum
        end = min(self._control.visible(), self._stop)
        self.next_offset = max(
            min(self._reader.gaps.after(self.next_offset), end), self.next_offset
        )
        return missed

    def window(self, limit: int) -> tuple[int, int]:
        """Return the offsets to scan next, at most *limit*: the first, and the one after the last.

        No gap is within.
        """
        start, end = self.next_offset, min(self._control.visible(), self._stop)
        gaps = self._reader.gaps
        until = next((first for first, _ in gaps.between(start, end)), end)
        return start, min(until, start + limit)
