"""The positions of the fields of RocketMQ's records, queue entries and index files, in bytes.

Offsets after BORNHOST move by 12 for an IPv6 born host, and again for an IPv6 store host.
``measure_record`` is the only walk over a record's variable parts, and checks each length.
"""

from __future__ import annotations

from typing import NamedTuple

from ._compile import device
from .intrinsics import load_i16, load_i32

__all__ = [
    "BODY_CRC",
    "BORN_HOST",
    "BORN_TIMESTAMP",
    "ENTRY_BYTES",
    "FLAG",
    "HOST_BYTES",
    "HOST_IPV6_EXTRA",
    "INDEX_ENTRY_BYTES",
    "INDEX_HEADER_BYTES",
    "INDEX_SLOT_BYTES",
    "MAGIC",
    "MAGIC_V1",
    "MAGIC_V2",
    "PHYSICAL_OFFSET",
    "QUEUE_ID",
    "QUEUE_OFFSET",
    "RECORD_MIN_BYTES",
    "SYS_FLAG",
    "SYS_FLAG_BORN_IPV6",
    "SYS_FLAG_COMPRESSED",
    "SYS_FLAG_INNER_BATCH",
    "SYS_FLAG_PREPARED",
    "SYS_FLAG_STORE_IPV6",
    "SYS_FLAG_TRANSACTION",
    "TAGS_CODE_EXT_MAX",
    "TOPIC_V1_MAX_BYTES",
    "Measure",
    "host_bytes",
    "measure_record",
]

MAGIC, BODY_CRC, QUEUE_ID, FLAG, QUEUE_OFFSET = 4, 8, 12, 16, 20
PHYSICAL_OFFSET, SYS_FLAG, BORN_TIMESTAMP, BORN_HOST = 28, 36, 40, 48
MAGIC_V1 = -626843481
MAGIC_V2 = -626843477  # the topic length has two bytes, for topics over 127 bytes
TOPIC_V1_MAX_BYTES = 127
SYS_FLAG_BORN_IPV6, SYS_FLAG_STORE_IPV6 = 0x10, 0x20
SYS_FLAG_COMPRESSED = 0x1
SYS_FLAG_TRANSACTION = 0xC  # two bits
SYS_FLAG_PREPARED = 0x4  # set in PREPARED and in ROLLBACK, which are in no queue
SYS_FLAG_INNER_BATCH = 0x80
HOST_BYTES = 8  # IPv4 address and a port of four bytes
HOST_IPV6_EXTRA = 12  # an IPv6 address is 16 bytes
RECORD_MIN_BYTES = 84 + 4 + 1 + 2  # fixed fields, body length, topic length, properties length
_BODY_LENGTH_LESS_HOSTS = 68  # all fixed fields before the body length except the two hosts

ENTRY_BYTES = 20  # i64 physical offset, i32 size, i64 tags code
TAGS_CODE_EXT_MAX = -2147483649  # at or below: the address of a ConsumeQueueExt unit, no hash

INDEX_HEADER_BYTES = 40
INDEX_SLOT_BYTES = 4
INDEX_ENTRY_BYTES = 20  # i32 hash, i64 physical offset, i32 seconds after begin, i32 previous


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
    size = load_i32(buffer, position)
    magic = load_i32(buffer, position + MAGIC)
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
        topic_size &= 0xFF
    properties_start = topic_start + topic_size + 2
    if topic_size < 0 or properties_start > end:
        return _NO_RECORD
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
