"""The kernel of ``rocketray/kernels/record_bodies.py`` in plain Python."""

from __future__ import annotations

import struct
import zlib

from oracles.measure import measure_record

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.layout import (
    RECORD_MIN_BYTES,
    SYS_FLAG_COMPRESSED,
)
from rocketray.kernels.property_crc import CRC_PROPERTY_BYTES, CRC_PROPERTY_NAME

__all__ = ["copy_bodies"]

_FIELDS = struct.Struct(">8xii4xqqi")  # body CRC, queue id, both offsets, sys flag
_CRC_MASK = 0x7FFFFFFF


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
        end = position + size
        name = segment[end - CRC_PROPERTY_BYTES : end].tobytes()[: len(CRC_PROPERTY_NAME)]
        body = segment[found.body_start : found.body_start + found.body_size]
        is_damaged = len(body) and zlib.crc32(body.data) & _CRC_MASK != crc
        if name == CRC_PROPERTY_NAME or is_damaged:
            return False
        data[at : at + len(body)] = body
        at += len(body)
        bounds[i + 1] = at
    return True
