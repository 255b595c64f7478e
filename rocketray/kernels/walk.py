"""A walk through a log: the consecutive records from one place in a segment on.

The walk finds the end of a log, so every byte may have any value: a record counts if it is
whole, holds its own physical offset, and names a queue.
"""

from __future__ import annotations

from ._compile import InBytes, OutInt32s, OutInt64s, kernel
from .intrinsics import load_i32, load_i64
from .layout import BODY_CRC, PHYSICAL_OFFSET, QUEUE_ID, QUEUE_OFFSET
from .measure import measure_record

__all__ = ["list_records"]


@kernel
def list_records(
    segment: InBytes,
    segment_start: int,
    position: int,
    physical_offsets: OutInt64s,
    sizes: OutInt32s,
    queue_ids: OutInt32s,
    queue_offsets: OutInt64s,
    body_crcs: OutInt32s,
) -> int:
    """List the records from *position* of a segment on, up to the first place without one.

    ``segment`` is one whole file whose first byte has the offset *segment_start*. The five arrays
    of equal length receive the fields of the records, as many as fit. Returns the number of
    records.
    """
    assert len(physical_offsets) == len(sizes) == len(queue_ids)
    assert len(sizes) == len(queue_offsets) == len(body_crcs)
    count = 0
    while count < len(sizes):
        size = measure_record(segment, position, len(segment)).size
        if size < 0:
            break
        offset = load_i64(segment, position + PHYSICAL_OFFSET)
        queue_id = load_i32(segment, position + QUEUE_ID)
        if offset != segment_start + position or queue_id < 0:
            break
        physical_offsets[count] = offset
        sizes[count] = size
        queue_ids[count] = queue_id
        queue_offsets[count] = load_i64(segment, position + QUEUE_OFFSET)
        body_crcs[count] = load_i32(segment, position + BODY_CRC)
        position += size
        count += 1
    return count
