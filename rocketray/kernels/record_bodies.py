"""Queue entries directly to bodies: records are checked and their bodies copied in one pass.

It does the work of ``spans.measure_spans``, ``hashing.crc32_spans`` and ``spans.gather_spans`` in
one step, for a reader that needs only the bodies of ordinary records. It only reports that there
are others: compressed bodies, records that may hold a CRC of their own, and damaged ones.
"""

from __future__ import annotations

import numpy as np

from ._compile import InBytes, InInt32s, InInt64s, OutBytes, OutInt32s, kernel
from .hashing import crc32_spans
from .intrinsics import load_i32, load_i64, load_native_u64
from .layout import BODY_CRC, PHYSICAL_OFFSET, QUEUE_ID, QUEUE_OFFSET, SYS_FLAG, SYS_FLAG_COMPRESSED
from .measure import measure_record
from .property_crc import CRC_NAME_WORD, CRC_PROPERTY_BYTES
from .spans import copy_span

__all__ = ["copy_bodies"]


@kernel
def copy_bodies(
    segment: InBytes,
    segment_start: int,
    physical_offsets: InInt64s,
    sizes: InInt32s,
    queue_offsets: InInt64s,
    queue_id: int,
    bounds: OutInt32s,
    data: OutBytes,
) -> bool:
    """Copy the bodies of the records that n queue entries point to, back to back, to ``data``.

    ``bounds`` int32[n + 1] become those of the bodies; ``data`` uint8 has room for the records.
    Returns False, and leaves both undefined, unless each is a whole record within the segment,
    whose first byte has the offset *segment_start*, of just this size, physical offset, queue id
    and queue offset, with a body that is not compressed and matches its CRC, and without a possible
    CRC of its own.
    """
    n = len(sizes)
    assert len(physical_offsets) == n == len(queue_offsets) == len(bounds) - 1
    starts, body_sizes = np.empty(n, np.int64), np.empty(n, np.int64)
    crcs, found_crcs = np.empty(n, np.int32), np.empty(n, np.int32)
    total = 0
    for i in range(n):
        position = physical_offsets[i] - segment_start
        found = measure_record(segment, position, len(segment))
        if found.size < 0 or found.size != sizes[i]:
            return False
        if load_i64(segment, position + PHYSICAL_OFFSET) != physical_offsets[i]:
            return False
        if load_i64(segment, position + QUEUE_OFFSET) != queue_offsets[i]:
            return False
        if load_i32(segment, position + QUEUE_ID) != queue_id:
            return False
        if load_i32(segment, position + SYS_FLAG) & SYS_FLAG_COMPRESSED != 0:
            return False
        if load_native_u64(segment, position + found.size - CRC_PROPERTY_BYTES) == CRC_NAME_WORD:
            return False
        starts[i], body_sizes[i] = found.body_start, found.body_size
        crcs[i] = load_i32(segment, position + BODY_CRC)
        total += found.body_size
    assert total <= len(data)
    crc32_spans(segment, starts, body_sizes, found_crcs)
    at = 0
    for i in range(n):
        size = body_sizes[i]
        if size > 0 and found_crcs[i] != crcs[i]:
            return False
        bounds[i] = at
        copy_span(data, at, segment, starts[i], size)
        at += size
    bounds[n] = at
    return True
