"""The ring through which one producer sends batches to one shard, without a call between them.

    page 0      lines: 0 format, 1 head, 2 tail, 3 acknowledged, 4 closed, 5 when the producer
                opened it, in ms since 1970; and its release, 64 bytes of UTF-8 behind them. Both
                are zeros in a ring of an earlier release
    slots       one per frame, by sequence modulo SLOT_COUNT: its outcome
    data        frames, back to back, never wrapped; a PAD frame fills the end

    frame  = u32 bytes of the whole frame (32-aligned) | u32 kind | u32 durability | u32 payload
             bytes | i64 sequence | 8 unused | payload (a packed EncodedBatch)
    slot   = i64 sequence | status | first queue offset | first physical offset | store
             timestamp | count

Invariants
  1. Head counts the bytes that the producer wrote, tail those that the shard has finished; head −
     tail never exceeds the capacity.
  2. A slot says PENDING, with the queue offset that its frame gets, before the frame is appended,
     and its outcome before anything else is appended. So after a shard was killed in between, the
     next one knows from the slot and from its log how many records of the frame are already stored:
     a frame is appended once, whichever process dies.
  3. Frames are acknowledged in order; at most SLOT_COUNT are unacknowledged.
  4. A ring that was cut short is dropped by its shard before a byte of it is touched: the end of
     the file is looked at before each pass. A cut within the pass still ends the process (SIGBUS),
     which starts again and drops it then.
  5. The producer may change a frame at any moment. Each number of it is read once, or copied before
     it is checked, and so are the records (kernels/drain.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rocketray import __version__
from rocketray.base.ack_mode import Durability, durability_numbered
from rocketray.errors import StoreVersionError, StreamError
from rocketray.kernels.drain import (
    FRAME_DATA,
    FRAME_HEADER_BYTES,
    FRAME_PAD,
    RingCursor,
)

from .acknowledgement import Ack, AppendStatus
from .control_page import LINE_BYTES, AdaptiveSpin, SharedFile

RING_BYTES = 4 * 1024 * 1024
"""Twice the largest batch of a ring: larger ones are sent by a call."""
SMALL_RING_BYTES = 128 * 1024
"""The room of each further ring of a producer that has many: 1,024 of them have 128 MiB."""
SLOT_COUNT = 1024
"""Frames of less than 4 KiB on average fill the slots before they fill a large ring."""
_SLOT = struct.Struct("=6q")
_NUMBER = struct.Struct("=q")
_HEADER = struct.Struct("=4Iq")
_PAGE_BYTES = 4096
_OPENED_LINE = 5
_RELEASE = slice(6 * LINE_BYTES, 7 * LINE_BYTES)
_SLOTS_BYTES = SLOT_COUNT * _SLOT.size  # 12 pages
_DATA_START = _PAGE_BYTES + _SLOTS_BYTES
_FORMAT = int.from_bytes(b"rktring1", "little")


class RingCorruptError(StreamError):
    """A ring has content that no producer writes; the shard stops reading it."""


_STATUSES = tuple(AppendStatus)


@dataclass(frozen=True, slots=True)
class Frame:
    """A batch in the ring; the payload is invalid once the frame is acknowledged."""

    sequence: int
    durability: Durability
    payload: memoryview


@dataclass(frozen=True, slots=True)
class RingFacts:
    """What a ring tells of its producer.

    ``opened_ms`` and ``release``: 0 and "" if its release does not tell. ``batches`` is the number
    of acknowledged ones; ``stored_ms`` is when the last of them was stored, 0 if none was, or that
    one was refused.
    """

    opened_ms: int
    release: str
    batches: int
    stored_ms: int


class _Ring:
    """The file and its lines, the same on both sides."""

    def __init__(self, path: Path, size: int | None, opened_ms: int = 0) -> None:
        self.path = path
        self._file = SharedFile(path, size, watches_size=size is None)
        kind, self._head, self._tail, self._acknowledged, self._closed = (
            self._file.line(number) for number in range(5)
        )
        self._opened = self._file.line(_OPENED_LINE)
        # The format last: a shard that attaches the ring before takes it for incomplete.
        if size is not None:
            self._opened.publish(opened_ms)
            release = __version__.encode()[:LINE_BYTES]
            self._file.memory[_RELEASE] = release.ljust(LINE_BYTES, b"\0")
            kind.publish(_FORMAT)
        if kind.load() != _FORMAT or len(self._file.bytes) <= _DATA_START + LINE_BYTES:
            raise StoreVersionError(
                f"{path} is not a ring that this release of rocketray can read; use one release "
                "for the node and its programs"
            )
        self._slots = self._file.memory[_PAGE_BYTES:_DATA_START]
        self._data = self._file.memory[_DATA_START:]
        self._capacity = len(self._data) & ~31  # frames are 32-aligned

    def acknowledged(self) -> int:
        """Return the sequence of the last acknowledged frame; 0 before the first."""
        return self._acknowledged.load()

    def unlink(self) -> None:
        """Remove the ring's name; the memory is freed when neither side has it mapped."""
        self._file.unlink()

    def outcome(self, sequence: int) -> Ack | None:
        """Return the slot of a frame, or None if the slot holds another frame."""
        found, status, *rest = _SLOT.unpack_from(self._slots, _slot_start(sequence))
        if found != sequence or not 0 <= status < len(_STATUSES):
            return None
        return Ack(_STATUSES[status], *rest)


class ProducerRing(_Ring):
    """The producer's side. One thread at a time."""

    def __init__(self, path: Path, capacity: int = RING_BYTES, *, opened_ms: int = 0) -> None:
        super().__init__(path, _DATA_START + capacity, opened_ms)
        self.payload_max = self._capacity // 2 - FRAME_HEADER_BYTES
        """Size limit of a batch in the ring, in bytes; half of the ring always holds one frame."""
        self._next_head = 0
        self._reserved = 0
        self._sequence = 0
        # Lower bounds, renewed only where there seems to be no room: the shard writes both numbers,
        # so to read one fetches its cache line from another core.
        self._known_tail = self._known_acknowledged = 0
        self._spin = AdaptiveSpin()

    def try_write(self, payload: bytes | memoryview, durability: Durability) -> int | None:
        """Copy a batch into the ring, unpublished; return its sequence, or None without room."""
        room = self.try_reserve(len(payload))
        if room is None:
            return None
        room[:] = payload
        return self.commit(durability)

    def try_reserve(self, size: int) -> memoryview | None:
        """Return room for a batch of *size* bytes, or None while there is none.

        The room belongs to the ring once it is committed; until then another reservation replaces
        it.
        """
        assert size <= self.payload_max
        if self._sequence - self._known_acknowledged >= SLOT_COUNT:
            self._known_acknowledged = self.acknowledged()
            if self._sequence - self._known_acknowledged >= SLOT_COUNT:
                return None
        needed = (FRAME_HEADER_BYTES + size + 31) & ~31
        position = self._next_head % self._capacity
        to_end = self._capacity - position
        padding = to_end if to_end < needed else 0
        next_head = self._next_head + padding + needed
        if next_head - self._known_tail > self._capacity:
            self._known_tail = self._tail.load()
            if next_head - self._known_tail > self._capacity:
                return None
        if padding:
            _HEADER.pack_into(self._data, position, padding, FRAME_PAD, 0, 0, self._sequence)
            self._next_head += padding
            position = 0
        self._reserved = size
        start = position + FRAME_HEADER_BYTES
        return self._data[start : start + size]

    def commit(self, durability: Durability) -> int:
        """Commit the batch in the room reserved last; return its sequence."""
        size = self._reserved
        needed = (FRAME_HEADER_BYTES + size + 31) & ~31
        self._sequence += 1
        header = needed, FRAME_DATA, durability, size, self._sequence
        _HEADER.pack_into(self._data, self._next_head % self._capacity, *header)
        self._next_head += needed
        return self._sequence

    def publish(self) -> None:
        """Let the shard see all that was written; ring its doorbell next."""
        self._head.publish(self._next_head)

    def wait_acknowledged(
        self, sequence: int, timeout_s: float, gives_up: Callable[[], bool] | None = None
    ) -> bool:
        """Return whether that frame is acknowledged before the time is over.

        *gives_up* is asked from time to time, and after :meth:`wake`, whether to wait no longer.
        """
        line = self._acknowledged
        return line.wait_above(sequence - 1, timeout_s, self._spin, gives_up=gives_up) >= sequence

    def wake(self) -> None:
        """Wake all that wait for an acknowledgement, of a ring that no shard reads any more."""
        # The shard is the only writer of the line, else: what it acknowledged last stays.
        self._acknowledged.publish(self.acknowledged())

    def ack(self, sequence: int) -> Ack:
        """Return an acknowledged frame's outcome, kept until SLOT_COUNT later ones are written."""
        ack = self.outcome(sequence)
        if ack is None:
            raise RingCorruptError(f"{self.path}: the slot of frame {sequence} holds another frame")
        return ack

    def unacknowledged(self) -> dict[int, bytes]:
        """Return the batches that are not acknowledged, by sequence, as they were written.

        For a ring that no shard reads any more.
        """
        found: dict[int, bytes] = {}
        tail, done = self._tail.load(), self.acknowledged()
        while tail < self._next_head:
            position = tail % self._capacity
            size, kind, _, payload, sequence = _HEADER.unpack_from(self._data, position)
            if kind == FRAME_DATA and sequence > done:
                start = position + FRAME_HEADER_BYTES
                found[sequence] = bytes(self._data[start : start + payload])
            tail += size
        return found

    def close(self) -> None:
        """Tell the shard that no more batches follow; it removes the ring once it is drained."""
        self._closed.publish(1)


class ShardRing(_Ring):
    """The shard's side. Used with the lock of the shard's writer held."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, None)
        data = self._file.bytes[_DATA_START:]
        self.data = data[: self._capacity]
        """The frames, uint8, for kernels."""
        self.slots = self._file.bytes[_PAGE_BYTES:_DATA_START].view(np.int64)
        """The outcomes, int64, for kernels."""
        self.cursor = np.zeros(len(RingCursor), np.int64)
        """The position up to which frames were taken; kernels advance it."""
        self.rewind()

    def rewind(self) -> None:
        """Take unacknowledged frames again; their slots have the outcomes (invariant 2)."""
        self.cursor[RingCursor.TAIL] = self._tail.load()
        self.cursor[RingCursor.SEQUENCE] = self.acknowledged()

    @property
    def is_whole(self) -> bool:
        """Whether no process has cut the ring short (invariant 4)."""
        return self._file.is_whole

    def look(self) -> bool:
        """Read the producer's head; return whether there are frames to take.

        Raises:
            RingCorruptError: the producer published more than the ring holds, or it was cut short.
        """
        # Before the first byte: a read beyond the end of the file is a SIGBUS (invariant 4).
        if not self._file.is_whole:
            raise RingCorruptError(f"{self.path}: it was cut short")
        head, tail = self._head.load(), self.cursor.item(RingCursor.TAIL)
        if not 0 <= head - tail <= self._capacity:
            raise RingCorruptError(f"{self.path}: invalid head {head} or tail {tail}")
        self.cursor[RingCursor.HEAD] = head
        return head > tail

    def next_frame(self) -> Frame | None:
        """Take the next published frame, or None; :meth:`acknowledge` it when it is stored.

        Raises:
            RingCorruptError: a length is invalid; nothing after it can be trusted.
        """
        tail, head, done = self.cursor.tolist()
        while tail < head:
            position = tail % self._capacity
            size, kind, number, payload, sequence = _HEADER.unpack_from(self._data, position)
            fits = size <= min(self._capacity - position, head - tail)
            if size < FRAME_HEADER_BYTES or size % FRAME_HEADER_BYTES or not fits:
                raise RingCorruptError(
                    f"{self.path}: invalid frame size: {size} bytes at {position}"
                )
            tail = self.cursor[RingCursor.TAIL] = tail + size
            if kind == FRAME_PAD:
                continue
            durability = durability_numbered(number) if kind == FRAME_DATA else None
            if durability is None or payload > size - FRAME_HEADER_BYTES:
                raise RingCorruptError(f"{self.path}: invalid frame header at {position}")
            if sequence <= done:
                continue  # acknowledged by an incarnation that died before it freed the room
            if sequence != done + 1:
                raise RingCorruptError(f"{self.path}: frame {sequence} follows {done}")
            self.cursor[RingCursor.SEQUENCE] = sequence
            start = position + FRAME_HEADER_BYTES
            return Frame(sequence, durability, self._data[start : start + payload])
        return None

    def interrupted(self) -> bool:
        """Return whether an earlier incarnation died while it appended a frame of this ring."""
        first = self.acknowledged() + 1
        outcomes = (self.outcome(first + index) for index in range(SLOT_COUNT))
        return any(ack is not None and ack.status is AppendStatus.PENDING for ack in outcomes)

    def record(self, sequence: int, ack: Ack) -> None:
        """Write a frame's slot: its intent before it is appended, its outcome after."""
        start = _slot_start(sequence)
        _SLOT.pack_into(self._slots, start, 0, *ack)
        _NUMBER.pack_into(self._slots, start, sequence)  # last: it makes the slot valid

    def acknowledge(self) -> None:
        """Free the room of all frames that were taken, whose slots have the outcomes."""
        # Room last: if the process dies in between, the next one meets these frames again, and
        # skips those whose sequences are acknowledged.
        tail, _, sequence = self.cursor.tolist()
        self._acknowledged.publish(sequence)
        self._tail.publish(tail)

    def facts(self) -> RingFacts:
        """Return what the ring tells of its producer; only of a whole one (invariant 4)."""
        batches = self.acknowledged()
        last = self.outcome(batches)
        return RingFacts(
            self._opened.load(),
            bytes(self._file.memory[_RELEASE]).rstrip(b"\0").decode("utf-8", "replace"),
            batches,
            0 if last is None or last.status is not AppendStatus.OK else last.store_timestamp_ms,
        )

    @property
    def is_closed(self) -> bool:
        """Whether the producer has closed the ring."""
        return bool(self._closed.load())

    @property
    def is_drained(self) -> bool:
        """Whether everything that was published has been taken."""
        return self._head.load() == int(self.cursor[RingCursor.TAIL])


def _slot_start(sequence: int) -> int:
    return sequence % SLOT_COUNT * _SLOT.size
