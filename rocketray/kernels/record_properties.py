"""Queue entries directly to properties: records are checked and searched in one pass.

It does the work of ``spans.measure_spans`` and ``properties.find_properties`` in one step, for a
filter that reads only properties. It also finds the property strings of a batch that is not
stored yet.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from ._compile import (
    IN_BYTES,
    IN_INT32S,
    IN_INT64S,
    INT,
    INT_AND_BOOL,
    OUT_INT64_ROWS,
    OUT_INT64S,
    Bytes,
    Int32s,
    Int64s,
    kernel,
)
from .intrinsics import load_i32, load_i64, load_native_u64
from .layout import (
    PHYSICAL_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECORD_MIN_BYTES,
    measure_record,
    measure_record_plain,
)
from .properties import find_in_string, find_properties_plain
from .property_crc import CRC_NAME_WORD, CRC_PROPERTY_BYTES, CRC_PROPERTY_NAME

__all__ = [
    "find_property_strings",
    "find_property_strings_plain",
    "find_record_properties",
    "find_record_properties_plain",
]

_QUEUE_ID_AND_OFFSETS = struct.Struct(">i4xqq")  # the four bytes between are the flag


def find_record_properties_plain(
    segment: Bytes,
    segment_start: int,
    physical_offsets: Int64s,
    sizes: Int32s,
    queue_offsets: Int64s,
    queue_id: int,
    first: int,
    names: Bytes,
    name_bounds: Int64s,
    value_starts: npt.NDArray[np.int64],
    value_sizes: npt.NDArray[np.int64],
) -> tuple[int, bool]:
    """Do as ``find_properties``, for the records that entries point to, from number *first* on.

    Returns two values:
      - the number of the first entry without a whole record within the segment, whose first byte
        has the offset *segment_start*, of just this size, physical offset, queue id and queue
        offset; or the number of entries;
      - whether the records before it may have a CRC of their own, which only their last 20 bytes
        tell.
    """
    may_hold_crc = False
    for i in range(first, len(sizes)):
        position = int(physical_offsets[i]) - segment_start
        found = measure_record_plain(segment, position, len(segment))
        if found.size < 0 or found.size != sizes[i]:
            return i, may_hold_crc
        raw = segment[position : position + RECORD_MIN_BYTES].tobytes()
        stored = _QUEUE_ID_AND_OFFSETS.unpack_from(raw, QUEUE_ID)
        if stored != (queue_id, queue_offsets[i], physical_offsets[i]):
            return i, may_hold_crc
        end = position + found.size
        name = segment[end - CRC_PROPERTY_BYTES : end].tobytes()[: len(CRC_PROPERTY_NAME)]
        may_hold_crc |= name == CRC_PROPERTY_NAME
        find_properties_plain(
            segment,
            np.array([found.properties_start]),
            np.array([found.properties_size]),
            names,
            name_bounds,
            value_starts[:, i : i + 1],
            value_sizes[:, i : i + 1],
        )
    return len(sizes), may_hold_crc


@kernel(
    find_record_properties_plain,
    INT_AND_BOOL,
    (
        *(IN_BYTES, INT, IN_INT64S, IN_INT32S, IN_INT64S, INT, INT),
        *(IN_BYTES, IN_INT64S, OUT_INT64_ROWS, OUT_INT64_ROWS),
    ),
)
def find_record_properties(
    segment,
    segment_start,
    physical_offsets,
    sizes,
    queue_offsets,
    queue_id,
    first,
    names,
    name_bounds,
    value_starts,
    value_sizes,
):
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


def find_property_strings_plain(
    records: Bytes, sizes: Int32s, property_starts: Int64s, property_sizes: Int64s
) -> int:
    """Find the property string of each of *n* records that lie back to back in *records*: int64[n].

    Returns -1, or the number of the first record that is not whole or not of its size.
    """
    position = 0
    for i, size in enumerate(sizes.tolist()):
        found = measure_record_plain(records, position, len(records))
        if found.size < 0 or found.size != size:
            return i
        property_starts[i], property_sizes[i] = found.properties_start, found.properties_size
        position += size
    return -1


@kernel(find_property_strings_plain, INT, (IN_BYTES, IN_INT32S, OUT_INT64S, OUT_INT64S))
def find_property_strings(records, sizes, property_starts, property_sizes):
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
