"""The kernels of ``rocketray/kernels/records.py`` in plain Python."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt
from oracles.conditions import run_program
from oracles.measure import measure_record
from oracles.properties import find_properties
from oracles.property_crc import is_damaged

from rocketray.kernels._compile import Bytes, Doubles, Int32s, Int64s
from rocketray.kernels.layout import QUEUE_ID, RECORD_MIN_BYTES, SYS_FLAG_COMPRESSED

_QUEUE_ID_AND_OFFSETS = struct.Struct(">i4xqq")  # the four bytes between are the flag
_FIELDS = struct.Struct(">8xii4xqqi")  # body CRC, queue id, both offsets, sys flag
_CRC_MASK = 0x7FFFFFFF


def find_record_properties(
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
) -> int:
    for i in range(first, len(sizes)):
        position = int(physical_offsets[i]) - segment_start
        found = measure_record(segment, position, len(segment))
        if found.size < 0 or found.size != sizes[i]:
            return i
        raw = segment[position : position + RECORD_MIN_BYTES].tobytes()
        stored = _QUEUE_ID_AND_OFFSETS.unpack_from(raw, QUEUE_ID)
        if stored != (queue_id, queue_offsets[i], physical_offsets[i]):
            return i
        record = segment[position : position + found.size].tobytes()
        if is_damaged(record, found.properties_size):
            return i
        find_properties(
            segment,
            np.array([found.properties_start]),
            np.array([found.properties_size]),
            names,
            name_bounds,
            value_starts[:, i : i + 1],
            value_sizes[:, i : i + 1],
        )
    return len(sizes)


def find_property_strings(
    records: Bytes, sizes: Int32s, property_starts: Int64s, property_sizes: Int64s
) -> int:
    position = 0
    for i, size in enumerate(sizes.tolist()):
        found = measure_record(records, position, len(records))
        if found.size < 0 or found.size != size:
            return i
        property_starts[i], property_sizes[i] = found.properties_start, found.properties_size
        position += size
    return -1


def judge_records(
    segment: Bytes,
    segment_start: int,
    physical_offsets: Int64s,
    sizes: Int32s,
    queue_offsets: Int64s,
    queue_id: int,
    names: Bytes,
    name_bounds: Int64s,
    program: Int64s,
    doubles: Doubles,
    texts: Bytes,
    bounds: Int64s,
    patterns: Int64s,
    states: Bytes,
) -> bool:
    value_starts = np.empty((len(name_bounds) - 1, len(sizes)), np.int64)
    value_sizes = np.empty_like(value_starts)
    found = find_record_properties(
        *(segment, segment_start, physical_offsets, sizes, queue_offsets, queue_id, 0),
        *(names, name_bounds, value_starts, value_sizes),
    )
    if found < len(sizes):
        return False
    values = segment, value_starts, value_sizes
    return not run_program(*values, program, doubles, texts, bounds, patterns, states)


def copy_bodies(
    segment: Bytes,
    segment_start: int,
    physical_offsets: Int64s,
    sizes: Int32s,
    queue_offsets: Int64s,
    queue_id: int,
    bounds: Int32s,
    data: Bytes,
) -> bool:
    at = 0
    bounds[0] = 0
    for i, (offset, size) in enumerate(zip(physical_offsets.tolist(), sizes.tolist(), strict=True)):
        position = offset - segment_start
        found = measure_record(segment, position, len(segment))
        if found.size < 0 or found.size != size:
            return False
        raw = segment[position : position + RECORD_MIN_BYTES].tobytes()
        crc, *place, sys_flag = _FIELDS.unpack_from(raw)
        if place != [queue_id, queue_offsets[i], offset] or sys_flag & SYS_FLAG_COMPRESSED:
            return False
        record = segment[position : position + size].tobytes()
        body = segment[found.body_start : found.body_start + found.body_size]
        differs = len(body) and zlib.crc32(body.data) & _CRC_MASK != crc
        if differs or is_damaged(record, found.properties_size):
            return False
        data[at : at + len(body)] = body
        at += len(body)
        bounds[i + 1] = at
    return True
