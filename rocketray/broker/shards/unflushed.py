"""The age of the oldest message of a shard that is not on disk.

Appends and flushes leave marks: what is behind this offset of the log was appended after this time.
An append leaves one if all before it is on disk, and each flush leaves one when it begins. So the
newest mark that is not behind the flushed offset bounds the age, and no message costs anything.

Invariants
  1. The age is never too low. It is too high by the time that the latest flush took at most.
  2. It grows while a flush hangs or waits for others: nothing here waits for one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rocketray.store.store_reads import StoreReads


class _Mark(NamedTuple):
    physical_offset: int
    time_ms: int


class Unflushed:
    """The messages of one shard that are not on disk; for any thread."""

    def __init__(self, reads: StoreReads, steady_ms: Callable[[], int]) -> None:
        """Take the log and a clock; what is not on disk yet counts from now on."""
        self._reads = reads
        self._steady_ms = steady_ms
        self._marks = deque([_Mark(0, steady_ms())])
        self._lock = threading.Lock()

    def before_append(self) -> None:
        """Note the time if all that was appended is on disk; called by the writer."""
        if self._reads.flushed_offset >= self._reads.max_physical_offset:
            self._mark()

    def before_flush(self) -> None:
        """Note the time: what is appended from now on, this flush may leave out."""
        self._mark()

    def age_ms(self) -> int:
        """Return the age of the oldest message that is not on disk; 0 if there is none."""
        with self._lock:
            self._forget_flushed()
            if self._reads.flushed_offset >= self._reads.max_physical_offset:
                return 0
            return max(1, self._steady_ms() - self._marks[0].time_ms)

    def _mark(self) -> None:
        with self._lock:
            self._forget_flushed()
            time_ms = self._steady_ms()  # before the offset: an append may run beside a flush
            end = self._reads.max_physical_offset
            if self._marks[-1].physical_offset == end:
                self._marks.pop()
            self._marks.append(_Mark(end, time_ms))

    def _forget_flushed(self) -> None:
        """Leave the newest mark that is not behind the flushed offset, and those after it."""
        flushed = self._reads.flushed_offset
        while len(self._marks) > 1 and self._marks[1].physical_offset <= flushed:
            self._marks.popleft()
