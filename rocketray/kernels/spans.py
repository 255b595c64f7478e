"""The positions of the parts of many records, and gathering such parts into one buffer.

A span is a start in a segment and a size; a size below 0 means "absent". ``measure_spans`` is the
gate: it checks each length of each record against the record and the segment. All other kernels
take the spans that it found, and only assert that they lie within the segment.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ._compile import (
    BOOL,
    IN_BYTES,
    IN_INT32S,
    IN_INT64S,
    INT,
    OUT_BYTES,
    OUT_INT32S,
    OUT_INT64_ROWS,
    TWO_INTS,
    Bytes,
    Int32s,
    Int64s,
    device,
    kernel,
)
from .intrinsics import copy, copy16, load_i32, load_i64, store_i64
from .layout import (
    BODY_CRC,
    BORN_TIMESTAMP,
    FLAG,
    PHYSICAL_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    SYS_FLAG,
    SYS_FLAG_STORE_IPV6,
    host_bytes,
    measure_record,
    measure_record_plain,
)

__all__ = [
    "Field",
    "copy_span",
    "end_of_segment",
    "end_of_segment_plain",
    "gather_spans",
    "gather_spans_plain",
    "is_ascii",
    "is_ascii_plain",
    "measure_spans",
    "measure_spans_plain",
    "sum_sizes",
    "sum_sizes_plain",
    "write_offset_ids",
    "write_offset_ids_plain",
]


class Field(IntEnum):
    """The rows that ``measure_spans`` writes; starts are positions in the segment."""

    BODY_START = 0
    BODY_SIZE = 1
    PROPERTIES_START = 2
    PROPERTIES_SIZE = 3
    TOPIC_START = 4
    TOPIC_SIZE = 5
    BORN_TIMESTAMP = 6
    STORE_TIMESTAMP = 7
    STORE_HOST_START = 8
    STORE_HOST_SIZE = 9
    FLAG = 10
    SYS_FLAG = 11
    BODY_CRC = 12
    QUEUE_ID = 13
    QUEUE_OFFSET = 14


_SHORT_SPAN = 256  # up to this size, a few vectors beat a call to memcpy
_FIELD_COUNT = len(Field)
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def measure_spans_plain(
    segment: Bytes,
    positions: Int64s,
    physical_offsets: Int64s,
    sizes: Int32s,
    fields: npt.NDArray[np.int64],
) -> int:
    """Find the parts of the records at *positions* int64[n] of *segment* with *sizes* int32[n].

    Each record must hold its offset of *physical_offsets* int64[n]; ``fields`` is
    int64[len(Field), n]. Returns -1, or the number of the first record that is not a whole record
    of just this size and offset within the segment; then the rows from there on are undefined.
    """
    places = zip(positions.tolist(), physical_offsets.tolist(), sizes.tolist(), strict=True)
    for i, (position, offset, size) in enumerate(places):
        found = measure_record_plain(segment, position, len(segment))
        if (
            found.size < 0
            or found.size != size
            or _number(segment, position + PHYSICAL_OFFSET, 8) != offset
        ):
            return i
        sys_flag = _number(segment, position + SYS_FLAG, 4)
        fields[:, i] = (
            found.body_start,
            found.body_size,
            found.properties_start,
            found.properties_size,
            found.topic_start,
            found.topic_size,
            _number(segment, position + BORN_TIMESTAMP, 8),
            _number(segment, found.store_host - 8, 8),
            found.store_host,
            20 if sys_flag & SYS_FLAG_STORE_IPV6 else 8,
            _number(segment, position + FLAG, 4),
            sys_flag,
            _number(segment, position + BODY_CRC, 4),
            _number(segment, position + QUEUE_ID, 4),
            _number(segment, position + QUEUE_OFFSET, 8),
        )
    return -1


@kernel(measure_spans_plain, INT, (IN_BYTES, IN_INT64S, IN_INT64S, IN_INT32S, OUT_INT64_ROWS))
def measure_spans(segment, positions, physical_offsets, sizes, fields):
    assert len(positions) == len(physical_offsets) == len(sizes)
    assert fields.shape[0] == _FIELD_COUNT
    assert fields.shape[1] == len(sizes)
    for i in range(len(sizes)):
        position = positions[i]
        found = measure_record(segment, position, len(segment))
        if found.size < 0 or found.size != sizes[i]:
            return i
        if load_i64(segment, position + PHYSICAL_OFFSET) != physical_offsets[i]:
            return i
        sys_flag = load_i32(segment, position + SYS_FLAG)
        fields[Field.BODY_START, i] = found.body_start
        fields[Field.BODY_SIZE, i] = found.body_size
        fields[Field.PROPERTIES_START, i] = found.properties_start
        fields[Field.PROPERTIES_SIZE, i] = found.properties_size
        fields[Field.TOPIC_START, i] = found.topic_start
        fields[Field.TOPIC_SIZE, i] = found.topic_size
        fields[Field.BORN_TIMESTAMP, i] = load_i64(segment, position + BORN_TIMESTAMP)
        fields[Field.STORE_TIMESTAMP, i] = load_i64(segment, found.store_host - 8)
        fields[Field.STORE_HOST_START, i] = found.store_host
        fields[Field.STORE_HOST_SIZE, i] = host_bytes(sys_flag, SYS_FLAG_STORE_IPV6)
        fields[Field.FLAG, i] = load_i32(segment, position + FLAG)
        fields[Field.SYS_FLAG, i] = sys_flag
        fields[Field.BODY_CRC, i] = load_i32(segment, position + BODY_CRC)
        fields[Field.QUEUE_ID, i] = load_i32(segment, position + QUEUE_ID)
        fields[Field.QUEUE_OFFSET, i] = load_i64(segment, position + QUEUE_OFFSET)
    return -1


def end_of_segment_plain(physical_offsets: Int64s, segment_bytes: int, first: int) -> int:
    """Return the number of the first record after *first* in another segment, or of all records."""
    starts = physical_offsets[first:] // segment_bytes
    others = np.flatnonzero(starts != starts[0])
    return first + int(others[0]) if len(others) else len(physical_offsets)


@kernel(end_of_segment_plain, INT, (IN_INT64S, INT, INT))
def end_of_segment(physical_offsets, segment_bytes, first):
    assert 0 <= first < len(physical_offsets)
    start = physical_offsets[first] // segment_bytes * segment_bytes
    for i in range(first, len(physical_offsets)):
        if not start <= physical_offsets[i] < start + segment_bytes:
            return i
    return len(physical_offsets)


def sum_sizes_plain(sizes: Int64s) -> tuple[int, int]:
    """Return the total bytes of all spans, and how many of them are absent."""
    return int(np.maximum(sizes, 0).sum()), int((sizes < 0).sum())


@kernel(sum_sizes_plain, TWO_INTS, (IN_INT64S,))
def sum_sizes(sizes):
    total = absent = 0
    for i in range(len(sizes)):
        total += max(sizes[i], 0)
        absent += sizes[i] < 0
    return total, absent


def is_ascii_plain(data: Bytes, size: int) -> bool:
    """Return whether the first *size* bytes are all below 128, so UTF-8 wherever they are cut."""
    return bool((data[:size] < 0x80).all())


@kernel(is_ascii_plain, BOOL, (IN_BYTES, INT))
def is_ascii(data, size):
    assert 0 <= size <= len(data)
    bits = np.uint8(0)
    for i in range(size):
        bits |= data[i]
    return bits < 0x80


def gather_spans_plain(
    source: Bytes, starts: Int64s, sizes: Int64s, offsets: Int32s, data: Bytes
) -> int:
    """Copy spans back to back to *data* and their bounds to *offsets*: Arrow's binary layout.

    ``starts`` and ``sizes`` int64[n], absent spans take no room; ``offsets`` int32[n + 1];
    ``data`` uint8 has room for the sum of the sizes, which is returned.
    """
    lengths = np.maximum(sizes, 0)
    offsets[0] = 0
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    assert total <= len(data)
    # Byte k of the result, in span i, is the byte k - offsets[i] of that span.
    shift = np.repeat(starts - offsets[:-1], lengths)
    data[:total] = source[shift + np.arange(total)]
    return total


@device
def copy_span(target, to, source, start, size):
    """Copy exactly *size* bytes, short spans by overlapping loads and stores of fixed widths."""
    if size > _SHORT_SPAN:
        copy(target, to, source, start, size)
    elif size >= 16:
        done = 0
        while done + 16 < size:
            copy16(target, to + done, source, start + done)
            done += 16
        copy16(target, to + size - 16, source, start + size - 16)
    elif size >= 8:
        copy(target, to, source, start, 8)
        copy(target, to + size - 8, source, start + size - 8, 8)
    elif size >= 4:
        copy(target, to, source, start, 4)
        copy(target, to + size - 4, source, start + size - 4, 4)
    else:
        for k in range(size):
            target[to + k] = source[start + k]


@kernel(gather_spans_plain, INT, (IN_BYTES, IN_INT64S, IN_INT64S, OUT_INT32S, OUT_BYTES))
def gather_spans(source, starts, sizes, offsets, data):
    assert len(starts) == len(sizes) == len(offsets) - 1
    at = 0
    for i in range(len(starts)):
        offsets[i] = at
        size = sizes[i]
        if size > 0:
            assert 0 <= starts[i] <= len(source) - size
            assert at <= len(data) - size
            copy_span(data, at, source, starts[i], size)
            at += size
    offsets[len(starts)] = at
    return at


def write_offset_ids_plain(
    segment: Bytes,
    host_starts: Int64s,
    host_sizes: Int64s,
    physical_offsets: Int64s,
    offsets: Int32s,
    data: Bytes,
) -> int:
    """Write the offset ids of n records as upper-case hex: store host, then physical offset.

    ``offsets`` int32[n + 1] and ``data`` uint8 are Arrow's string layout; an id has 32 characters,
    56 with an IPv6 store host. Returns the number of characters.
    """
    at = 0
    for i, offset in enumerate(physical_offsets.tolist()):
        offsets[i] = at
        start = int(host_starts[i])
        host = bytes(segment[start : start + int(host_sizes[i])])
        text = (host + offset.to_bytes(8, "big")).hex().upper().encode()
        data[at : at + len(text)] = np.frombuffer(text, np.uint8)
        at += len(text)
    offsets[len(physical_offsets)] = at
    return at


@kernel(
    write_offset_ids_plain,
    INT,
    (IN_BYTES, IN_INT64S, IN_INT64S, IN_INT64S, OUT_INT32S, OUT_BYTES),
)
def write_offset_ids(segment, host_starts, host_sizes, physical_offsets, offsets, data):
    assert len(host_starts) == len(host_sizes) == len(physical_offsets) == len(offsets) - 1
    scratch = np.empty(8, np.uint8)
    at = 0
    for i in range(len(physical_offsets)):
        offsets[i] = at
        start = host_starts[i]
        size = host_sizes[i]
        assert 0 <= start <= len(segment) - size
        assert at <= len(data) - 2 * size - 16
        store_i64(scratch, 0, physical_offsets[i])
        for k in range(size):
            data[at + 2 * k] = _HEX[segment[start + k] >> 4]
            data[at + 2 * k + 1] = _HEX[segment[start + k] & 15]
        at += 2 * size
        for k in range(8):
            data[at + 2 * k] = _HEX[scratch[k] >> 4]
            data[at + 2 * k + 1] = _HEX[scratch[k] & 15]
        at += 16
    offsets[len(physical_offsets)] = at
    return at


def _number(buffer: Bytes, position: int, width: int) -> int:
    return int.from_bytes(buffer[position : position + width].tobytes(), "big", signed=True)
