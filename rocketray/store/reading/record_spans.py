"""Records in parts: where in memory the parts of each are, checked against its queue entry.

The rules are those of reader.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.errors import ConfigError, CorruptRecordError
from rocketray.kernels.hashing import crc32_spans
from rocketray.kernels.spans import Field, measure_spans
from rocketray.message import TAGS, StoredMessage
from rocketray.store.formats.arrow_spans import (
    ARROW_BYTES_MAX,
    binary_array,
    find_values,
    joined_array,
    match_exactly,
    string_array,
)
from rocketray.store.formats.compression import inflate
from rocketray.store.formats.property_crc import find_crc_mismatches
from rocketray.store.formats.record import decode_record
from rocketray.store.formats.sys_flag import COMPRESSED
from rocketray.store.queues.consume_queue import FILLER_SIZE, HOLE_SIZE

from .sliced_messages import sliced_messages, usual_records

_Int64s = npt.NDArray[np.int64]
_Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """Consume queue entries as native columns of one length, contiguous in memory.

    ``physical_offsets`` int64[n], ``sizes`` int32[n], ``tags_codes`` int64[n], ``queue_offsets``
    int64[n].
    """

    physical_offsets: _Int64s
    sizes: _Int32s
    tags_codes: _Int64s
    queue_offsets: _Int64s

    def __len__(self) -> int:
        return len(self.sizes)

    def arrays(self) -> tuple[_Int64s, _Int32s, _Int64s, _Int64s]:
        """Return the columns in the kernels' order."""
        return self.physical_offsets, self.sizes, self.tags_codes, self.queue_offsets

    def select(self, which: Any) -> EntryColumns:
        """Return the entries that *which* picks, a slice, a mask bool[n] or numbers int64[m]."""
        return EntryColumns(
            np.ascontiguousarray(self.physical_offsets[which]),  # a stepped slice is not contiguous
            np.ascontiguousarray(self.sizes[which]),
            np.ascontiguousarray(self.tags_codes[which]),
            np.ascontiguousarray(self.queue_offsets[which]),
        )

    def without_holes(self) -> EntryColumns:
        """Return the entries without those of messages that recovery found lost (replay.py).

        And without those of gaps (queue_gaps.py), which are zeros.
        """
        if not len(self) or (self.sizes.min() > HOLE_SIZE and self.sizes.max() < FILLER_SIZE):
            return self
        return self.select((self.sizes > HOLE_SIZE) & (self.sizes != FILLER_SIZE))

    @classmethod
    def room_for(cls, count: int) -> Self:
        """Return columns of *count* entries, not filled yet."""
        return cls(
            np.empty(count, np.int64),
            np.empty(count, np.int32),
            np.empty(count, np.int64),
            np.empty(count, np.int64),
        )

    @classmethod
    def concatenated(cls, parts: Sequence[EntryColumns]) -> EntryColumns:
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.room_for(0)
        columns = zip(*(part.arrays() for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))


@dataclass(frozen=True, slots=True)
class SegmentSpans:
    """Records of one segment, in parts: row i of every array is of record i.

    ``segment`` uint8 is the whole file; ``fields`` int64[len(Field), n] holds positions in it and
    numbers, one row per :class:`~rocketray.kernels.spans.Field`.
    """

    path: str
    segment: npt.NDArray[np.uint8]
    physical_offsets: _Int64s
    sizes: _Int32s
    fields: _Int64s

    def __len__(self) -> int:
        return len(self.sizes)

    def record(self, row: int) -> bytes:
        """Return a copy of one whole record."""
        end = int(
            self.fields[Field.PROPERTIES_START, row] + self.fields[Field.PROPERTIES_SIZE, row]
        )
        return self.segment[end - int(self.sizes[row]) : end].tobytes()

    def message(self, row: int) -> StoredMessage:
        """Return one record, decoded; its body is checked and inflated."""
        return decode_record(self.record(row), self.path, int(self.physical_offsets[row]))

    def messages(self, topic: str) -> list[StoredMessage]:
        """Return the records, checked, as messages of *topic* and, if one has another, of that.

        Raises:
            CorruptRecordError: a body does not match its CRC, or does not inflate.
            MessageTooLargeError: a body inflates to more than its limit.
        """
        usual, ends = usual_records(self.segment, self.fields, topic)
        self._check_bodies(usual)
        if usual.all():
            return self._sliced(slice(None), ends, topic)
        sliced = iter(self._sliced(usual, ends, topic))
        return [
            next(sliced) if is_usual else self.message(row) for row, is_usual in enumerate(usual)
        ]

    def _sliced(self, which: Any, ends: _Int64s, topic: str) -> list[StoredMessage]:
        sizes = self.sizes[which].astype(np.int64)
        return sliced_messages(self.segment, sizes, self.fields[:, which], ends[which], topic)

    def find(self, names: Sequence[str]) -> tuple[_Int64s, _Int64s]:
        """Return starts and sizes, int64[names, n], of the named properties; size -1 if absent."""
        starts, sizes = self.fields[Field.PROPERTIES_START], self.fields[Field.PROPERTIES_SIZE]
        return find_values(self.segment, starts, sizes, names)

    def bodies(self) -> Any:
        """Return the bodies as Arrow ``binary``, checked, and inflated if stored compressed.

        Raises:
            CorruptRecordError: a body does not match its CRC, or does not inflate.
            MessageTooLargeError: a body inflates to more than its limit.
            ConfigError: together they exceed one Arrow column.
        """
        self._check_bodies(slice(None))
        starts, sizes = self.fields[Field.BODY_START], self.fields[Field.BODY_SIZE]
        flags = self.fields[Field.SYS_FLAG]
        if not (flags & COMPRESSED).any():
            return binary_array(self.segment, starts, sizes)
        bodies = []
        total = 0
        for row, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
            stored = self.segment[start : start + size].tobytes()
            bodies.append(
                inflate(stored, int(flags[row]), self.path, int(self.physical_offsets[row]))
            )
            total += len(bodies[-1])
            if total > ARROW_BYTES_MAX:
                raise ConfigError(
                    f"{len(starts)} bodies have over {ARROW_BYTES_MAX} bytes when inflated, more "
                    "than an Arrow column can hold; read fewer messages at a time"
                )
        return pa.array(bodies, pa.binary())

    def _check_bodies(self, which: Any) -> None:
        """Raise :class:`CorruptRecordError` if a body of those records does not match its CRC."""
        rows = (Field.BODY_START, Field.BODY_SIZE, Field.BODY_CRC)
        starts, sizes, told = (np.ascontiguousarray(self.fields[row][which]) for row in rows)
        crcs = np.empty(len(starts), np.int32)
        crc32_spans(self.segment, starts, sizes, crcs)
        wrong = (crcs != told) & (sizes > 0)
        if wrong.any():
            at = int(self.physical_offsets[which][wrong.argmax()])
            raise CorruptRecordError(self.path, at, "its body does not match its CRC")


class RecordReader(ABC):
    """A reader of messages of one queue, given their entries."""

    topic: str
    queue_id: int

    @abstractmethod
    def records(self, entries: EntryColumns) -> list[SegmentSpans]:
        """Return the parts of the entries' records, in order; an item for each memory block."""

    def bodies(self, entries: EntryColumns) -> list[bytes]:
        """Return the messages' bodies, inflated if stored compressed."""
        return [body for part in self.records(entries) for body in part.bodies().to_pylist()]

    def body_array(self, entries: EntryColumns) -> Any:
        """Return the same as Arrow ``binary``; raise as :meth:`SegmentSpans.bodies`."""
        return joined_array([part.bodies() for part in self.records(entries)], pa.binary())

    def tags(self, entries: EntryColumns) -> list[str | None]:
        found: list[str | None] = []
        for part in self.records(entries):
            starts, sizes = part.find([TAGS])
            found += string_array(part.segment, starts[0], sizes[0]).to_pylist()
        return found

    def property_strings(self, entries: EntryColumns) -> list[bytes]:
        """Return the messages' property strings, as they are stored."""
        found: list[bytes] = []
        for part in self.records(entries):
            starts, sizes = part.fields[Field.PROPERTIES_START], part.fields[Field.PROPERTIES_SIZE]
            found += binary_array(part.segment, starts, sizes).to_pylist()
        return found

    def messages(self, entries: EntryColumns) -> list[StoredMessage]:
        """Return the messages; their bodies are checked, and inflated if stored compressed."""
        return [found for part in self.records(entries) for found in part.messages(self.topic)]

    def have_tags(self, entries: EntryColumns, tags: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return which messages have exactly one of *tags*: bool[n]; False without a tag."""
        matches = [np.empty(0, np.bool_)]
        for part in self.records(entries):
            starts, sizes = part.find([TAGS])
            matches.append(match_exactly(part.segment, starts[0], sizes[0], tags))
        return np.concatenate(matches)

    def _take_apart(
        self,
        segment: npt.NDArray[np.uint8],
        path: str,
        positions: _Int64s,
        entries: EntryColumns,
    ) -> SegmentSpans:
        """Return the records of *entries*, which begin at *positions* int64[n] of *segment* uint8.

        Raises:
            CorruptRecordError: an entry does not point to a whole record of its size, or to the
                record of another place in a queue. *path* is for the error.
        """
        offsets, sizes, _, queue_offsets = entries.arrays()
        fields = np.empty((len(Field), len(entries)), np.int64)
        bad = measure_spans(segment, positions, offsets, sizes, fields)
        if bad >= 0:
            raise CorruptRecordError(
                path,
                int(offsets[bad]),
                f"queue offset {queue_offsets[bad]} of topic {self.topic!r} queue "
                f"{self.queue_id} expects a record of {sizes[bad]} bytes, which is missing",
            )
        properties = fields[Field.PROPERTIES_START], fields[Field.PROPERTIES_SIZE]
        # Before the queue offset, which may be what is damaged.
        damaged = find_crc_mismatches(segment, sizes.astype(np.int64), *properties)
        if damaged.any():
            raise CorruptRecordError(
                path, int(offsets[damaged.argmax()]), "it does not match its CRC property"
            )
        self._check_places(path, offsets, queue_offsets, fields)
        return SegmentSpans(path, segment, offsets, sizes, fields)

    def _check_places(
        self, path: str, offsets: _Int64s, queue_offsets: _Int64s, fields: _Int64s
    ) -> None:
        """Raise :class:`CorruptRecordError` for a record of another place in a queue."""
        others = fields[Field.QUEUE_OFFSET] != queue_offsets
        others |= fields[Field.QUEUE_ID] != self.queue_id
        if others.any():
            bad = int(others.argmax())
            raise CorruptRecordError(
                path,
                int(offsets[bad]),
                f"queue offset {queue_offsets[bad]} of topic {self.topic!r} queue {self.queue_id} "
                f"points to it, but its fields name queue offset {fields[Field.QUEUE_OFFSET, bad]} "
                f"of queue {fields[Field.QUEUE_ID, bad]}",
            )


def property_texts(
    reader: RecordReader, entries: EntryColumns, names: Sequence[str]
) -> list[list[str | None]]:
    """Return the named properties: for each name, that of every message, None without it."""
    found: list[list[str | None]] = [[] for _ in names]
    for part in reader.records(entries):
        starts, sizes = part.find(names)
        for values, start, size in zip(found, starts, sizes, strict=True):
            values.extend(string_array(part.segment, start, size).to_pylist())
    return found
