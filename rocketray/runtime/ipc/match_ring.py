"""The ring through which the filter actor passes one member the matches of one queue.

    page 0      lines: 0 format, 1 head, 2 tail, 3 scanned, 4 state,
                5 queue offset of the first message on which SQL92 failed, plus 1, or 0;
                then from byte 512 on i64, one a field of FilterCounters, written by the filter
    page 1…8    u32 length, then the stream as JSON: topic, queue, group, subscription, doorbell
    page 9      u32 length, then the error that stopped the stream, as text
    entries     i64 physical offset | i64 size | i64 queue offset, by number modulo CAPACITY

The member creates the file and the filter actor fills it. The file has all state that a restarted
filter actor needs, so it resumes where the dead one stopped.

Invariants
  1. Head counts the entries written, tail those that the member took; head − tail ≤ CAPACITY.
  2. Every match below ``scanned`` is below head: scanned is published after head.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from rocketray.base.json_fields import json_fields, read_value
from rocketray.base.names import check_group, check_topic
from rocketray.errors import StoreVersionError, StreamError
from rocketray.filters.counters import FilterCounters
from rocketray.filters.subscription import Subscription

from .control_page import LINE_BYTES, SharedFile
from .ring import RingCorruptError

# 24 bytes each: 1.5 MiB for a member's queue. The stream pauses when the member is so far behind.
CAPACITY = 65_536
_PAGE_BYTES = 4096
_DESCRIPTION_BYTES = 8 * _PAGE_BYTES  # an expression has at most 4 KiB characters
_ERROR_START = _PAGE_BYTES + _DESCRIPTION_BYTES
_ENTRIES_START = _ERROR_START + _PAGE_BYTES
_ENTRY_FIELDS = 3
_COUNTERS_START = 8 * LINE_BYTES
_COUNTERS = len(fields(FilterCounters))
_FORMAT = int.from_bytes(b"rktmtch2", "little")  # the digit rises with a change of the layout


class StreamState(IntEnum):
    """Whether the filter actor still fills the ring."""

    RUNNING = 0
    FAILED = 1
    CLOSED = 2


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """The description of a stream; ``doorbell`` is rung when there are matches for the member.

    The stream begins at queue offset ``start``, and ends before ``stop`` unless that is None.
    """

    topic: str
    queue_id: int
    group: str
    subscription: Subscription
    start: int
    doorbell: str
    stop: int | None = None

    def to_json(self) -> bytes:
        """Return the description as it is stored in the ring."""
        return orjson.dumps(json_fields(self))

    @classmethod
    def from_json(cls, text: bytes) -> StreamDescription:
        """Return the description that :meth:`to_json` wrote.

        Raises:
            RingCorruptError: the text is not one. ConfigError: a name or the subscription is bad.
        """
        try:
            found = read_value(cls, orjson.loads(text))
            check_topic(found.topic)
            check_group(found.group)
        except StreamError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise RingCorruptError(
                f"invalid description of a match ring's stream: {error!r}"
            ) from None
        return found


class MatchRing:
    """Both sides of the ring; the filter actor writes, the member takes."""

    def __init__(self, path: Path, description: StreamDescription | None = None) -> None:
        """Map the ring; with a description, create it first."""
        size = _ENTRIES_START + CAPACITY * _ENTRY_FIELDS * 8
        self.path = path
        self._file = SharedFile(path, size if description else None)
        lines = [self._file.line(number) for number in range(6)]
        kind, self._head, self._tail, self._scanned, self._state, self._first_error = lines
        end = _COUNTERS_START + _COUNTERS * 8
        self._counters = self._file.bytes[_COUNTERS_START:end].view(np.int64)
        if description is not None:
            self._write_text(_PAGE_BYTES, description.to_json(), _DESCRIPTION_BYTES)
            self._scanned.publish(description.start)
            kind.publish(_FORMAT)
        if kind.load() != _FORMAT or len(self._file.bytes) < size:
            raise StoreVersionError(
                f"{path} is not a match ring that this release of rocketray can read; use one "
                "release for the node and its programs"
            )
        entries = self._file.bytes[_ENTRIES_START:size].view(np.int64)
        self._entries = entries.reshape(CAPACITY, _ENTRY_FIELDS)

    def description(self) -> StreamDescription:
        return StreamDescription.from_json(self._read_text(_PAGE_BYTES, _DESCRIPTION_BYTES))

    # The filter actor's side.

    def room(self) -> int:
        """Return how many entries can be written now; 0 if head and tail are invalid."""
        # The member can write anything as its tail: an invalid one must not have entries replaced.
        used = self._head.load() - self._tail.load()
        return CAPACITY - used if 0 <= used <= CAPACITY else 0

    def resume_at(self) -> int:
        """Return the queue offset to scan next, also after a filter actor that died half-way."""
        head = self._head.load()
        scanned = self._scanned.load()
        # It may have died after the head and before ``scanned``: then the last entry is further.
        return max(scanned, int(self._entries[(head - 1) % CAPACITY, 2]) + 1) if head else scanned

    def write(self, entries: npt.NDArray[np.int64], scanned: int) -> None:
        """Append matches, shape (n, 3) with n ≤ room, and publish how far the queue was scanned."""
        head = self._head.load()
        assert len(entries) <= CAPACITY
        first = min(len(entries), CAPACITY - head % CAPACITY)
        self._entries[head % CAPACITY : head % CAPACITY + first] = entries[:first]
        self._entries[: len(entries) - first] = entries[first:]
        self._head.publish(head + len(entries))
        self._scanned.publish(scanned)

    def count(self, amounts: FilterCounters) -> None:
        """Add to the counters, which outlive the filter actor: a new one continues them."""
        self._counters += amounts.numbers()

    def note_error(self, queue_offset: int) -> None:
        """Record that SQL92 failed on the message at that offset; only the first one is kept."""
        if self._first_error.load() == 0:
            self._first_error.publish(queue_offset + 1)

    def fail(self, reason: str) -> None:
        """Stop the stream, and tell the member the reason."""
        text = reason.encode("utf-8", "replace")[: _PAGE_BYTES - 4]
        self._write_text(_ERROR_START, text, _PAGE_BYTES)
        self._state.publish(StreamState.FAILED)

    # The member's side.

    def take(self, max_count: int) -> tuple[npt.NDArray[np.int64], int]:
        """Take up to *max_count* matches, copied; return them and the offset to commit after them.

        The room is freed at once, so the member bounds what it holds.

        Raises:
            RingCorruptError: head and tail are invalid.
        """
        # In this order: a head that is read later is above all matches below ``scanned``.
        scanned = self._scanned.load()
        head = self._head.load()
        tail = self._tail.load()
        if not 0 <= head - tail <= CAPACITY:
            raise RingCorruptError(f"{self.path}: invalid head {head} or tail {tail}")
        count = min(head - tail, max_count)
        first = tail % CAPACITY
        taken = np.concatenate(
            (
                self._entries[first : first + count],
                self._entries[: max(0, first + count - CAPACITY)],
            )
        )
        # Matches are left, or come from behind ``scanned``: then the last one taken is the bound.
        if count < head - tail or (count and int(taken[-1, 2]) >= scanned):
            scanned = int(taken[-1, 2]) + 1
        if count:
            self._tail.publish(tail + count)
        return taken, scanned

    def waiting(self) -> int:
        """Return how many matches can be taken now."""
        return self._head.load() - self._tail.load()

    def close(self) -> None:
        """Tell the filter actor to drop the stream, and remove the ring."""
        self._state.publish(StreamState.CLOSED)
        self._file.unlink()

    # Both sides.

    @property
    def state(self) -> StreamState:
        """State of the stream; FAILED if the stored number is invalid."""
        number = self._state.load()
        return StreamState(number) if 0 <= number < len(StreamState) else StreamState.FAILED

    @property
    def first_error(self) -> int | None:
        """Queue offset of the first message on which SQL92 failed, or None."""
        offset = self._first_error.load() - 1
        return offset if offset >= 0 else None

    @property
    def error(self) -> str:
        """Reason why the stream failed."""
        return self._read_text(_ERROR_START, _PAGE_BYTES).decode("utf-8", "replace")

    def counters(self) -> FilterCounters:
        """Return the filter actor's counters; none is torn, but one may be ahead of another."""
        return FilterCounters(*self._counters.tolist())

    def _write_text(self, start: int, text: bytes, limit: int) -> None:
        assert len(text) <= limit - 4
        field = self._file.bytes[start : start + limit]
        field[4 : 4 + len(text)] = np.frombuffer(text, np.uint8)
        field[:4] = np.frombuffer(len(text).to_bytes(4, "little"), np.uint8)

    def _read_text(self, start: int, limit: int) -> bytes:
        field = self._file.bytes[start : start + limit].tobytes()
        return field[4 : 4 + min(int.from_bytes(field[:4], "little"), limit - 4)]
