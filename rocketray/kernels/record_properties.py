"""Queue entries directly to properties: records are checked and searched in one pass.

It does the work of ``spans.measure_spans`` and ``properties.find_properties`` in one step, for a
filter that reads only properties. It also finds the property strings of a batch that is not
stored yet.
"""

from __future__ import annotations

from ._compile import InBytes, InInt32s, InInt64s, OutInt64Rows, OutInt64s, kernel
from .intrinsics import load_i32, load_i64, load_native_u64
from .layout import PHYSICAL_OFFSET, QUEUE_ID, QUEUE_OFFSET
from .measure import measure_record
from .properties import find_in_string
from .property_crc import CRC_NAME_WORD, CRC_PROPERTY_BYTES

__all__ = [
    "find_property_strings",
    "find_record_properties",
]


@kernel
def find_record_properties(
    segment: InBytes,
    segment_start: int,
    physical_offsets: InInt64s,
    sizes: InInt32s,
    queue_offsets: InInt64s,
    queue_id: int,
    first: int,
    names: InBytes,
    name_bounds: InInt64s,
    value_starts: OutInt64Rows,
    value_sizes: OutInt64Rows,
) -> tuple[int, bool]:
    """Do as ``find_properties``, for the records that entries point to, from number *first* on.

    Returns two values:
      - the number of the first entry without a whole record within the segment, whose first byte
        has the offset *segment_start*, of just this size, physical offset, queue id and queue
        offset; or the number of entries;
      - whether the records before it may have a CRC of their own, which only their last 20 bytes
        tell.
    """
    assert len(physical_offsets) == len(sizes) == len(queue_offsets)
    assert value_starts.shape[1] == value_sizes.shape[1] == len(sizes)
    assert len(name_bounds) - 1 == value_starts.shape[0] == value_sizes.shape[0]
    assert name_bounds[-1] <= len(names)
    assert first >= 0
    may_hold_crc = False
    for i in range(first, len(sizes)):
        position = physical_offsets[i] - segment_start
        found = measure_record(segment, position, len(segment))
        if found.size < 0 or found.size != sizes[i]:
            return i, may_hold_crc
        if load_i64(segment, position + PHYSICAL_OFFSET) != physical_offsets[i]:
            return i, may_hold_crc
        if load_i64(segment, position + QUEUE_OFFSET) != queue_offsets[i]:
            return i, may_hold_crc
        if load_i32(segment, position + QUEUE_ID) != queue_id:
            return i, may_hold_crc
        if load_native_u64(segment, position + found.size - CRC_PROPERTY_BYTES) == CRC_NAME_WORD:
            may_hold_crc = True
        start, size = found.properties_start, found.properties_size
        find_in_string(segment, start, size, i, names, name_bounds, value_starts, value_sizes)
    return len(sizes), may_hold_crc


@kernel
def find_property_strings(
    records: InBytes, sizes: InInt32s, property_starts: OutInt64s, property_sizes: OutInt64s
) -> int:
    """Find the property string of each of *n* records that lie back to back in *records*: int64[n].

    Returns -1, or the number of the first record that is not whole or not of its size.
    """
    assert len(sizes) == len(property_starts) == len(property_sizes)
    position = 0
    for i in range(len(sizes)):
        found = measure_record(records, position, len(records))
        if found.size < 0 or found.size != sizes[i]:
            return i
        property_starts[i] = found.properties_start
        property_sizes[i] = found.properties_size
        position += found.size
    return -1
