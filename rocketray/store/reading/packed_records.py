"""Stored records of one queue as bytes, for readers that cannot map the queue's files.

Frame, little-endian, without gaps:
    magic "RRR1" · u32 records n · u32 queue id · u32 topic bytes · i64 next queue offset u64 record
    bytes · i64[n] physical offsets · i64[n] queue offsets · i32[n] sizes · topic · records

The records are whole, as they are stored, so the receiver checks and decodes them like a reader
that maps the files. Every length is checked before it is used.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.errors import InvalidMessageError
from rocketray.kernels.layout import RECORD_MIN_BYTES
from rocketray.kernels.spans import Field, gather_spans

from .record_spans import EntryColumns, RecordReader, SegmentSpans

_HEADER = struct.Struct("<4sIIIqQ")
_MAGIC = b"RRR1"
_ENTRY_BYTES = 20  # two i64 and an i32, without the tags code
_WHERE = "a batch from another node"


def pack_records(reader: RecordReader, entries: EntryColumns, next_queue_offset: int) -> bytes:
    """Return the records of *entries*, and the next queue offset behind them.

    Raises:
        CorruptRecordError: one of them is damaged.
    """
    records = [_copied(part) for part in reader.records(entries)]
    topic = reader.topic.encode()
    header = _HEADER.pack(
        _MAGIC,
        len(entries),
        reader.queue_id,
        len(topic),
        next_queue_offset,
        sum(map(len, records)),
    )
    arrays = entries.physical_offsets, entries.queue_offsets, entries.sizes
    return b"".join((header, *[array.data for array in arrays], topic, *records))


class Unpacked(NamedTuple):
    """The input of :func:`pack_records`; the reader knows only the records of the entries."""

    reader: PackedRecords
    entries: EntryColumns
    next_queue_offset: int


class PackedRecords(RecordReader):
    """Records that lie back to back in ``data`` uint8, in the order of *entries*."""

    def __init__(
        self, topic: str, queue_id: int, entries: EntryColumns, data: npt.NDArray[np.uint8]
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._data = data
        self._queue_offsets = entries.queue_offsets
        ends = np.cumsum(entries.sizes, dtype=np.int64)
        self._positions = ends - entries.sizes

    def records(self, entries: EntryColumns) -> list[SegmentSpans]:
        """Return the records of *entries*, which must be among the packed ones."""
        if not len(entries):
            return []
        rows = np.searchsorted(self._queue_offsets, entries.queue_offsets)
        return [self._take_apart(self._data, _WHERE, self._positions[rows], entries)]


def unpack_records(frame: bytes | memoryview) -> Unpacked:
    """Return the content of a frame, as views of it.

    Raises:
        InvalidMessageError: its lengths do not agree, or its queue offsets do not ascend.
    """
    if len(frame) < _HEADER.size:
        raise _bad(f"{len(frame)} bytes have no complete header")
    magic, count, queue_id, topic_bytes, next_queue_offset, total = _HEADER.unpack_from(frame)
    if magic != _MAGIC:
        raise _bad(f"it begins with {magic!r}, not {_MAGIC!r}")
    expected = _HEADER.size + _ENTRY_BYTES * count + topic_bytes + total
    if expected != len(frame):
        raise _bad(f"it should have {expected} bytes, not {len(frame)}")
    at = _HEADER.size
    entries = EntryColumns(
        _column(frame, np.int64, count, at),
        _column(frame, np.int32, count, at + 16 * count),
        # Tags codes are not sent: filters have used them before.
        np.zeros(count, np.int64),
        _column(frame, np.int64, count, at + 8 * count),
    )
    sizes, queue_offsets = entries.sizes, entries.queue_offsets
    if int(sizes.sum(dtype=np.int64)) != total or (sizes < RECORD_MIN_BYTES).any():
        raise _bad(f"the sizes of its records do not make up {total} bytes")
    if (np.diff(queue_offsets) <= 0).any() or (queue_offsets >= next_queue_offset).any():
        raise _bad("its queue offsets do not ascend")
    at += _ENTRY_BYTES * count
    try:
        topic = bytes(frame[at : at + topic_bytes]).decode()
    except UnicodeDecodeError:
        raise _bad("its topic is not UTF-8") from None
    data = np.frombuffer(frame, np.uint8, total, at + topic_bytes)
    return Unpacked(PackedRecords(topic, queue_id, entries, data), entries, next_queue_offset)


def _copied(part: SegmentSpans) -> memoryview:
    """Return the records of *part*, back to back."""
    ends = part.fields[Field.PROPERTIES_START] + part.fields[Field.PROPERTIES_SIZE]
    sizes = part.sizes.astype(np.int64)
    copy = np.empty(int(sizes.sum()), np.uint8)
    gather_spans(part.segment, ends - sizes, sizes, np.empty(len(sizes) + 1, np.int32), copy)
    return copy.data


def _column(frame: bytes | memoryview, dtype: type[Any], count: int, at: int) -> npt.NDArray[Any]:
    return np.frombuffer(frame, dtype, count, at).copy()  # aligned, whatever the frame is


def _bad(reason: str) -> InvalidMessageError:
    return InvalidMessageError(f"{_WHERE}: {reason}")
