"""The measurement of a record: the only walk over its variable parts, which checks each length.

``list_records`` measures one record after the other. It finds the end of a log, so every byte may
have any value: a record counts if it is whole, holds its own physical offset, and names a queue.
"""

from __future__ import annotations

from typing import NamedTuple

from ._compile import InBytes, OutInt32s, OutInt64s, device, kernel
from .intrinsics import load_i16, load_i32, load_i64
from .layout import (
    BODY_CRC,
    BORN_HOST,
    HOST_BYTES,
    HOST_IPV6_EXTRA,
    MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECORD_MIN_BYTES,
    SYS_FLAG,
    SYS_FLAG_BORN_IPV6,
    SYS_FLAG_STORE_IPV6,
    TOPIC_V1_MAX_BYTES,
)

_BODY_LENGTH_LESS_HOSTS = 68  # all fixed fields before the body length except the two hosts


class Measure(NamedTuple):
    """The parts of one record, as positions in its buffer. ``size`` is -1 unless it is whole."""

    size: int
    store_host: int
    body_start: int
    body_size: int
    topic_start: int
    topic_size: int
    properties_start: int
    properties_size: int


_NO_RECORD = Measure(-1, 0, 0, 0, 0, 0, 0, 0)


@device
def host_bytes(sys_flag, ipv6_bit):
    """Return 8 or 20: the length of a host field under *sys_flag*."""
    return HOST_BYTES + HOST_IPV6_EXTRA if sys_flag & ipv6_bit else HOST_BYTES


@device
def measure_record(buffer, position, end):
    """Measure the record at *position*, all of it before *end*, a length within *buffer*."""
    if position < 0 or position + RECORD_MIN_BYTES > end or end > len(buffer):
        return _NO_RECORD
    size, magic = load_i32(buffer, position), load_i32(buffer, position + MAGIC)
    return measure_begun_record(buffer, position, end, size, magic)


@device
def measure_begun_record(buffer, position, end, size, magic):
    """Do the same for a record whose first fields, *size* and *magic*, are not in *buffer* yet.

    At least ``RECORD_MIN_BYTES`` of *buffer* are between *position* and *end*.
    """
    if size < RECORD_MIN_BYTES or position + size > end:
        return _NO_RECORD
    if magic not in (MAGIC_V1, MAGIC_V2):
        return _NO_RECORD
    sys_flag = load_i32(buffer, position + SYS_FLAG)
    born_bytes = host_bytes(sys_flag, SYS_FLAG_BORN_IPV6)
    hosts = born_bytes + host_bytes(sys_flag, SYS_FLAG_STORE_IPV6)
    end = position + size
    body_start = position + _BODY_LENGTH_LESS_HOSTS + hosts + 4
    if body_start > end:
        return _NO_RECORD
    body_size = load_i32(buffer, body_start - 4)
    length_bytes = 1 if magic == MAGIC_V1 else 2
    topic_start = body_start + body_size + length_bytes
    if body_size < 0 or topic_start > end:
        return _NO_RECORD
    topic_size = load_i16(buffer, topic_start - 2)
    if length_bytes == 1:
        # The other byte is the last one of the body, or of its length.
        topic_size &= 0xFF
    properties_start = topic_start + topic_size + 2
    if topic_size < 0 or properties_start > end:
        return _NO_RECORD
    # Java would read it as a negative length.
    if length_bytes == 1 and topic_size > TOPIC_V1_MAX_BYTES:
        return _NO_RECORD
    properties_size = load_i16(buffer, properties_start - 2)
    if properties_size < 0 or properties_start + properties_size != end:
        return _NO_RECORD
    return Measure(
        size,
        position + BORN_HOST + born_bytes + 8,
        body_start,
        body_size,
        topic_start,
        topic_size,
        properties_start,
        properties_size,
    )


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
