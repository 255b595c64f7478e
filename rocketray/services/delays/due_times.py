"""The due times of the messages of a queue, in arrays: 20 bytes per message.

They are kept in runs that are sorted by due time, then by queue offset. A new run is merged with
the one before it unless that is more than twice as long. So n messages lie in about log2(n) runs,
adding a message moves it log2(n) times, and taking the next ones reads the head of each run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_Int64s = npt.NDArray[np.int64]
_Int32s = npt.NDArray[np.int32]


class Due(NamedTuple):
    """Messages by due time, then offset: ``due_ms`` int64[n], ``offsets`` int64[n].

    ``waits_s`` int32[n] is the longest wait of each in seconds, from the time it was stored.
    """

    due_ms: _Int64s
    offsets: _Int64s
    waits_s: _Int32s

    def sorted(self) -> Due:
        return self.part(np.lexsort((self.offsets, self.due_ms)))

    def part(self, which: slice | _Int64s) -> Due:
        """Return some of the messages, by their numbers."""
        return Due(self.due_ms[which], self.offsets[which], self.waits_s[which])

    def copied(self) -> Due:
        """Return the same messages in memory of their own."""
        return Due(self.due_ms.copy(), self.offsets.copy(), self.waits_s.copy())

    @staticmethod
    def concatenated(parts: list[Due]) -> Due:
        return Due(*(np.concatenate(column) for column in zip(*parts, strict=True)))


NOTHING_DUE = Due(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))


class _Run:
    """One sorted run, of which the first ``taken`` messages were removed."""

    def __init__(self, due: Due) -> None:
        self.due = due
        self.taken = 0

    def __len__(self) -> int:
        return len(self.due.offsets) - self.taken

    def rest(self) -> Due:
        return self.due.part(slice(self.taken, None))

    def take(self, count: int) -> None:
        self.taken += count
        if 2 * self.taken > len(self.due.offsets):  # fewer are copied than were taken
            self.due = self.rest().copied()
            self.taken = 0


class DueTimes:
    """The messages that wait. For one thread at a time."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, due: Due) -> None:
        """Add messages, in any order."""
        if not len(due.offsets):
            return
        self._runs.append(_Run(due.sorted()))
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            merged = Due.concatenated([self._runs.pop().rest(), self._runs.pop().rest()])
            self._runs.append(_Run(merged.sorted()))

    def next_ms(self) -> int | None:
        heads = [int(run.due.due_ms[run.taken]) for run in self._runs if len(run)]
        return min(heads, default=None)

    def take(self, now_ms: int, limit: int) -> Due:
        """Take the first messages, at most *limit*, of those that are due at *now_ms*."""
        parts, numbers = [], []
        for number, run in enumerate(self._runs):
            count = int(np.searchsorted(run.due.due_ms[run.taken :], now_ms, "right"))
            parts.append(run.rest().part(slice(0, min(count, limit))))
            numbers.append(np.full(len(parts[-1].offsets), number))
        if not parts:
            return NOTHING_DUE
        everything = Due.concatenated(parts)
        order = np.lexsort((everything.offsets, everything.due_ms))[:limit]
        taken_from = np.bincount(np.concatenate(numbers)[order], minlength=len(self._runs))
        for run, count in zip(self._runs, taken_from.tolist(), strict=True):
            run.take(count)
        self._runs = [run for run in self._runs if len(run)]
        return everything.part(order)

    def rests(self) -> list[Due]:
        return [run.rest() for run in self._runs]

    def take_all(self) -> Due:
        """Take every message, due or not."""
        everything = Due.concatenated(self.rests() or [NOTHING_DUE]).sorted()
        self._runs = []
        return everything

    def drop(self, are_gone: Callable[[_Int64s], npt.NDArray[np.bool_]]) -> None:
        """Drop the messages for whose offsets *are_gone* returns true."""
        for number, run in enumerate(self._runs):
            rest = run.rest()
            stays = ~are_gone(rest.offsets)
            if not stays.all():
                self._runs[number] = _Run(rest.part(np.flatnonzero(stays)))
        self._runs = [run for run in self._runs if len(run)]

    def limit_waits(self, now_ms: int) -> None:
        """Limit each wait, from *now_ms* on, to the message's longest: the clock was set back."""
        for number, run in enumerate(self._runs):
            rest = run.rest()
            latest = now_ms + 1000 * rest.waits_s.astype(np.int64)
            if (rest.due_ms > latest).any():
                earlier = rest._replace(due_ms=np.minimum(rest.due_ms, latest))
                self._runs[number] = _Run(earlier.sorted())
