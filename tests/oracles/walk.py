"""The kernel of ``rocketray/kernels/walk.py`` in plain Python."""

from __future__ import annotations

from oracles.measure import measure_record

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.layout import (
    BODY_CRC,
    PHYSICAL_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
)

__all__ = ["list_records"]


def list_records(
    segment: Bytes,
    segment_start: int,
    position: int,
    physical_offsets: Int64s,
    sizes: Int32s,
    queue_ids: Int32s,
    queue_offsets: Int64s,
    body_crcs: Int32s,
) -> int:
    count = 0
    while count < len(sizes):
        size = measure_record(segment, position, len(segment)).size
        if size < 0:
            break
        offset = _number(segment, position + PHYSICAL_OFFSET, 8)
        queue_id = _number(segment, position + QUEUE_ID, 4)
        if offset != segment_start + position or queue_id < 0:
            break
        physical_offsets[count] = offset
        sizes[count] = size
        queue_ids[count] = queue_id
        queue_offsets[count] = _number(segment, position + QUEUE_OFFSET, 8)
        body_crcs[count] = _number(segment, position + BODY_CRC, 4)
        position += size
        count += 1
    return count


def _number(buffer: Bytes, position: int, width: int) -> int:
    return int.from_bytes(buffer[position : position + width].tobytes(), "big", signed=True)
