"""The doorbell of a shard process: one line to sleep on, and counters that say who rang.

    page 0      line 0 of control_page.py: every ring publishes it
    slots       SLOTS slots of 8 bytes, each the number of its rings

A queue has one slot, computed from its name by everyone, and some queues share theirs: a ring of
one makes the process look at the rings of the others, too, and find nothing there.

Invariants
  1. A producer publishes its ring's head, then rings the slot, then line 0. So a sleeper that reads
     line 0, then the slots, then the ring's head misses nothing: what it does not see yet ends its
     sleep.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from rocketray.hashing import java_hash_code
from rocketray.kernels import futex

from .control_page import AdaptiveSpin, SharedFile

SLOTS = 1024  # as many as a topic may have queues, so those of one topic share none
_PAGE_BYTES = 4096
_SLOT_BYTES = 8


class ProcessDoorbell:
    """A doorbell on a file of its own: any process rings it, the threads of one sleep on it."""

    def __init__(self, path: Path) -> None:
        self._file = SharedFile(path, _PAGE_BYTES + SLOTS * _SLOT_BYTES)
        self._line = self._file.line(0)
        self._slots = int(self._file.bytes.ctypes.data) + _PAGE_BYTES
        self.counts = self._file.bytes[_PAGE_BYTES:].view(np.int64)
        """The number of rings of each slot, for kernels."""

    @staticmethod
    def slot(topic: str, queue_id: int) -> int:
        """Return the slot of a queue; up to ``SLOTS`` queues of a topic have different ones."""
        return (java_hash_code(topic) + queue_id) % SLOTS

    def bell(self, topic: str, queue_id: int) -> QueueBell:
        slot = self._slots + self.slot(topic, queue_id) * _SLOT_BYTES
        return QueueBell(self, slot, self._line.address)

    def ring(self) -> None:
        """Wake the sleepers, or keep them from falling asleep, for no queue."""
        self._line.ring()

    def count(self) -> int:
        """Return the number of rings; read it before :meth:`RungSlots.take`."""
        return self._line.load()

    def wait(self, seen: int, timeout_s: float, spin: AdaptiveSpin | None = None) -> None:
        """Sleep until it was rung since :meth:`count` returned *seen*, or the time is over.

        In one sleep, so not in a program's main thread, which handles signals.
        """
        self._line.wait_above(seen, timeout_s, spin, slice_s=timeout_s)


class QueueBell:
    """The doorbell of a process, rung for one queue."""

    __slots__ = ("_doorbell", "_line", "_slot")

    def __init__(self, doorbell: ProcessDoorbell, slot: int, line: int) -> None:
        """Take the addresses of the queue's slot and of the line, which *doorbell* keeps mapped."""
        self._doorbell = doorbell
        self._slot = slot
        self._line = line

    def ring(self) -> None:
        """Wake the process to look at the rings of this queue."""
        futex.ring_for(self._slot, self._line)


class RungSlots:
    """The slots of a doorbell that were rung, of those that one thread watches."""

    __slots__ = ("_changed", "_doorbell", "_seen", "_watched")

    def __init__(self, doorbell: ProcessDoorbell) -> None:
        self._doorbell = doorbell
        self._seen = np.zeros(SLOTS, np.int64)
        self._changed = np.zeros(SLOTS, np.int64)
        self._watched = np.zeros(0, np.int64)

    def watch(self, slots: Iterable[int]) -> None:
        """Watch *slots* from now on, and no others."""
        self._watched = np.fromiter(slots, np.int64)

    def take(self) -> list[int]:
        """Return the watched slots that were rung since they were last returned."""
        count = futex.take_changes(self._doorbell.counts, self._watched, self._seen, self._changed)
        return self._changed[:count].tolist() if count else []
