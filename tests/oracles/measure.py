"""The measurement of a record, from the description of its format alone."""

from __future__ import annotations

import struct

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.layout import (
    BODY_CRC,
    BORN_HOST,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECORD_MIN_BYTES,
    SYS_FLAG,
    SYS_FLAG_BORN_IPV6,
    SYS_FLAG_STORE_IPV6,
)
from rocketray.kernels.measure import Measure

_FIRST_FIELDS = struct.Struct(">ii")
_INT, _SHORT, _BYTE = struct.Struct(">i"), struct.Struct(">h"), struct.Struct(">b")
_NO_RECORD = Measure(-1, 0, 0, 0, 0, 0, 0, 0)


def measure_record(buffer: Bytes, position: int, end: int) -> Measure:
    if position < 0 or end > len(buffer) or end - position < RECORD_MIN_BYTES:
        return _NO_RECORD
    raw = buffer.data[position:end]
    size, magic = _FIRST_FIELDS.unpack_from(raw)
    if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_MIN_BYTES <= size <= len(raw):
        return _NO_RECORD
    (sys_flag,) = _INT.unpack_from(raw, SYS_FLAG)
    born = 20 if sys_flag & SYS_FLAG_BORN_IPV6 else 8
    store_host = BORN_HOST + born + 8
    store = 20 if sys_flag & SYS_FLAG_STORE_IPV6 else 8
    try:
        body_start, body_size = _counted(raw, store_host + store + 12, _INT)
        topic_length = _BYTE if magic == MAGIC_V1 else _SHORT
        topic_start, topic_size = _counted(raw, body_start + body_size, topic_length)
        start, count = _counted(raw, topic_start + topic_size, _SHORT)
    except struct.error:
        return _NO_RECORD
    if start + count != size:
        return _NO_RECORD
    return Measure(
        size,
        position + store_host,
        position + body_start,
        body_size,
        position + topic_start,
        topic_size,
        position + start,
        count,
    )


def _counted(raw: memoryview, position: int, length: struct.Struct) -> tuple[int, int]:
    """Return start and size of a field behind its length; raise ``struct.error`` if below 0."""
    (size,) = length.unpack_from(raw, position)
    if size < 0:
        raise struct.error
    return position + length.size, size


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
