"""The kernels of ``rocketray/kernels/record_properties.py`` in plain Python."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
from oracles.measure import measure_record
from oracles.properties import find_properties

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.layout import (
    QUEUE_ID,
    RECORD_MIN_BYTES,
)
from rocketray.kernels.property_crc import CRC_PROPERTY_BYTES, CRC_PROPERTY_NAME

__all__ = ["find_property_strings", "find_record_properties"]

_QUEUE_ID_AND_OFFSETS = struct.Struct(">i4xqq")  # the four bytes between are the flag


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
) -> tuple[int, bool]:
    may_hold_crc = False
    for i in range(first, len(sizes)):
        position = int(physical_offsets[i]) - segment_start
        found = measure_record(segment, position, len(segment))
        if found.size < 0 or found.size != sizes[i]:
            return i, may_hold_crc
        raw = segment[position : position + RECORD_MIN_BYTES].tobytes()
        stored = _QUEUE_ID_AND_OFFSETS.unpack_from(raw, QUEUE_ID)
        if stored != (queue_id, queue_offsets[i], physical_offsets[i]):
            return i, may_hold_crc
        end = position + found.size
        name = segment[end - CRC_PROPERTY_BYTES : end].tobytes()[: len(CRC_PROPERTY_NAME)]
        may_hold_crc |= name == CRC_PROPERTY_NAME
        find_properties(
            segment,
            np.array([found.properties_start]),
            np.array([found.properties_size]),
            names,
            name_bounds,
            value_starts[:, i : i + 1],
            value_sizes[:, i : i + 1],
        )
    return len(sizes), may_hold_crc


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
