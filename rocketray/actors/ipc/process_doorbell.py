"""The doorbell of a shard process: one line to sleep on, and counters that say who rang.

    page 0      line 0 of control_page.py: every ring publishes it
    slots       SLOTS slots of 16 bytes, each a line without its padding: i64 rings | u32 | u32

A queue has one slot, computed from its name by everyone, and some queues share theirs: a ring of
one makes the process look at the rings of the others, too, and find nothing there.

Invariants
  1. A producer publishes its ring's head, then rings the slot, then line 0. So a sleeper that reads
     line 0, then the slots, then the ring's head misses nothing: what it does not see yet ends its
     sleep.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.hashing import java_hash_code
from rocketray.kernels import futex

from .control_page import AdaptiveSpin, SharedFile

__all__ = ["SLOTS", "ProcessDoorbell", "QueueBell"]

SLOTS = 1024
_PAGE_BYTES = 4096
_SLOT_BYTES = 16


class ProcessDoorbell:
    """A doorbell on a file of its own: any process rings it, the threads of one sleep on it."""

    def __init__(self, path: Path) -> None:
        self._file = SharedFile(path, _PAGE_BYTES + SLOTS * _SLOT_BYTES)
        self._line = self._file.line(0)
        self._slots = int(self._file.bytes.ctypes.data) + _PAGE_BYTES
        self._counts = self._file.bytes[_PAGE_BYTES:].view(np.int64)[:: _SLOT_BYTES // 8]

    @staticmethod
    def slot(topic: str, queue_id: int) -> int:
        """Return the slot of a queue; up to ``SLOTS`` queues of a topic have different ones."""
        return (java_hash_code(topic) + queue_id) % SLOTS

    def bell(self, topic: str, queue_id: int) -> QueueBell:
        """Return the bell of one queue."""
        return QueueBell(self, self.slot(topic, queue_id))

    def ring(self, slot: int | None = None) -> None:
        """Wake the sleepers, or keep them from falling asleep, for the queues of *slot*."""
        if slot is not None:
            futex.ring(self._slots + slot * _SLOT_BYTES)
        self._line.ring()

    def count(self) -> int:
        """Return the number of rings; read it before :meth:`counts`."""
        return self._line.load()

    def counts(self) -> npt.NDArray[np.int64]:
        """Return the number of rings of each slot."""
        return self._counts.copy()

    def wait(self, seen: int, timeout_s: float, spin: AdaptiveSpin | None = None) -> None:
        """Sleep until it was rung since :meth:`count` returned *seen*, or the time is over."""
        self._line.wait_above(seen, timeout_s, spin)


class QueueBell:
    """The doorbell of a process, rung for one queue."""

    __slots__ = ("_doorbell", "_slot")

    def __init__(self, doorbell: ProcessDoorbell, slot: int) -> None:
        self._doorbell = doorbell
        self._slot = slot

    def ring(self) -> None:
        """Wake the process to look at the rings of this queue."""
        self._doorbell.ring(self._slot)
