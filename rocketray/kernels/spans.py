"""The positions of the parts of many records, and gathering such parts into one buffer.

A span is a start in a segment and a size; a size below 0 means "absent". ``measure_spans`` is the
gate: it checks each length of each record against the record and the segment. All other kernels
take the spans that it found, and only assert that they lie within the segment.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from ._compile import (
    InBytes,
    InInt32s,
    InInt64s,
    OutBytes,
    OutInt32s,
    OutInt64Rows,
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
)
from .measure import host_bytes, measure_record


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


@kernel
def measure_spans(
    segment: InBytes,
    positions: InInt64s,
    physical_offsets: InInt64s,
    sizes: InInt32s,
    fields: OutInt64Rows,
) -> int:
    """Find the parts of the records at *positions* int64[n] of *segment* with *sizes* int32[n].

    Each record must hold its offset of *physical_offsets* int64[n]; ``fields`` is
    int64[len(Field), n]. Returns -1, or the number of the first record that is not a whole record
    of just this size and offset within the segment; then the rows from there on are undefined.
    """
    assert len(positions) == len(physical_offsets) == len(sizes)
    assert fields.shape[0] == _FIELD_COUNT
    assert fields.shape[1] == len(sizes)
    for i in range(len(sizes)):
        position = positions[i]
        measure = measure_record(segment, position, len(segment))
        if measure.size < 0 or measure.size != sizes[i]:
            return i
        if load_i64(segment, position + PHYSICAL_OFFSET) != physical_offsets[i]:
            return i
        sys_flag = load_i32(segment, position + SYS_FLAG)
        fields[Field.BODY_START, i] = measure.body_start
        fields[Field.BODY_SIZE, i] = measure.body_size
        fields[Field.PROPERTIES_START, i] = measure.properties_start
        fields[Field.PROPERTIES_SIZE, i] = measure.properties_size
        fields[Field.TOPIC_START, i] = measure.topic_start
        fields[Field.TOPIC_SIZE, i] = measure.topic_size
        fields[Field.BORN_TIMESTAMP, i] = load_i64(segment, position + BORN_TIMESTAMP)
        fields[Field.STORE_TIMESTAMP, i] = load_i64(segment, measure.store_host - 8)
        fields[Field.STORE_HOST_START, i] = measure.store_host
        fields[Field.STORE_HOST_SIZE, i] = host_bytes(sys_flag, SYS_FLAG_STORE_IPV6)
        fields[Field.FLAG, i] = load_i32(segment, position + FLAG)
        fields[Field.SYS_FLAG, i] = sys_flag
        fields[Field.BODY_CRC, i] = load_i32(segment, position + BODY_CRC)
        fields[Field.QUEUE_ID, i] = load_i32(segment, position + QUEUE_ID)
        fields[Field.QUEUE_OFFSET, i] = load_i64(segment, position + QUEUE_OFFSET)
    return -1


@kernel
def end_of_segment(physical_offsets: InInt64s, segment_bytes: int, first: int) -> int:
    """Return the number of the first record after *first* in another segment, or of all records."""
    assert 0 <= first < len(physical_offsets)
    start = physical_offsets[first] // segment_bytes * segment_bytes
    for i in range(first, len(physical_offsets)):
        if not start <= physical_offsets[i] < start + segment_bytes:
            return i
    return len(physical_offsets)


@kernel
def sum_sizes(sizes: InInt64s) -> tuple[int, int]:
    """Return the total bytes of all spans, and how many of them are absent."""
    total = absent = 0
    for i in range(len(sizes)):
        total += max(sizes[i], 0)
        absent += sizes[i] < 0
    return total, absent


@kernel
def is_ascii(data: InBytes, size: int) -> bool:
    """Return whether the first *size* bytes are all below 128, so UTF-8 wherever they are cut."""
    assert 0 <= size <= len(data)
    bits = np.uint8(0)
    for i in range(size):
        bits |= data[i]
    return bool(bits < 0x80)


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


@kernel
def gather_spans(
    source: InBytes, starts: InInt64s, sizes: InInt64s, offsets: OutInt32s, data: OutBytes
) -> int:
    """Copy spans back to back to *data* and their bounds to *offsets*: Arrow's binary layout.

    ``starts`` and ``sizes`` int64[n], absent spans take no room; ``offsets`` int32[n + 1];
    ``data`` uint8 has room for the sum of the sizes, which is returned.
    """
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


@kernel
def write_offset_ids(
    segment: InBytes,
    host_starts: InInt64s,
    host_sizes: InInt64s,
    physical_offsets: InInt64s,
    offsets: OutInt32s,
    data: OutBytes,
) -> int:
    """Write the offset ids of n records as upper-case hex: store host, then physical offset.

    ``offsets`` int32[n + 1] and ``data`` uint8 are Arrow's string layout; an id has 32 characters,
    56 with an IPv6 store host. Returns the number of characters.
    """
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
