"""The bytes of one commit log record, in plain Python: the format itself, and the kernels' oracle.

    TOTALSIZE i32 | MAGICCODE i32 | BODYCRC i32 | QUEUEID i32 | FLAG i32 | QUEUEOFFSET i64
    PHYSICALOFFSET i64 | SYSFLAG i32 | BORNTIMESTAMP i64 | BORNHOST 8 or 20
    STORETIMESTAMP i64 | STOREHOST 8 or 20 | RECONSUMETIMES i32 | PREPAREDTRANSACTIONOFFSET i64
    BODYLENGTH i32, BODY | TOPICLENGTH i8 (V1) or i16 (V2), TOPIC | PROPERTIESLENGTH i16, PROPERTIES

All numbers are big-endian. A host is its address, 4 or 16 bytes as SYSFLAG says, and an i32 port.
A BLANK record, size and magic alone, closes a segment: its size is all that was left of it.
Source: RocketMQ 5.3.3, ``MessageDecoder``, ``MessageExtEncoder``, ``MessageSysFlag``.

Invariant: every length is checked against the record's own size before it is used, and a body is
inflated up to a limit only (compression.py).
"""

from __future__ import annotations

import socket
import struct
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from rocketray.base.property_string import decode_properties
from rocketray.errors import CorruptRecordError, MessageTooLargeError
from rocketray.hashing import crc32
from rocketray.kernels.layout import (
    HOST_BYTES,
    HOST_IPV6_EXTRA,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_MIN_BYTES,
    SYS_FLAG_BORN_IPV6,
    SYS_FLAG_STORE_IPV6,
    TOPIC_V1_MAX_BYTES,
)
from rocketray.kernels.property_crc import CRC_PROPERTY_BYTES
from rocketray.message import PROPERTIES_MAX_BYTES, PhysicalOffset, QueueOffset, StoredMessage

from .compression import inflate
from .property_crc import crc_property, matches_crc_property, with_crc_property

MAGIC_BLANK = -875286124  # 0xcbd43194
BLANK_BYTES = 8  # i32 size, i32 magic

_HEAD = struct.Struct(">iiiiiqqiq")  # up to and including BORNTIMESTAMP
_STORE_TIMESTAMP = struct.Struct(">q")
_TAIL = struct.Struct(">iqi")  # reconsume times, prepared transaction offset, body length
_INT, _SHORT, _BYTE = struct.Struct(">i"), struct.Struct(">h"), struct.Struct(">b")
_BLANK = struct.Struct(">ii")
_IPV4_HOST_BYTES = HOST_BYTES
_IPV6_HOST_BYTES = HOST_BYTES + HOST_IPV6_EXTRA
_KNOWN_HOSTS = 1024  # decoded host fields in the cache
_Buffer = Any  # bytes, memoryview or uint8 array: whatever struct reads from


class RecordFields(NamedTuple):
    """The fields of one record; hosts, body, topic and properties as positions in its buffer."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host_start: int
    store_timestamp_ms: int
    store_host_start: int
    store_host_end: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_start: int
    body_end: int
    topic_start: int
    topic_end: int
    properties_start: int


@dataclass(frozen=True, slots=True)
class RecordValues:
    """What a record is encoded from; *body* and *properties* are stored as given."""

    topic: str
    body: bytes
    properties: bytes
    _: KW_ONLY
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    born_timestamp_ms: int
    born_host: tuple[str, int]
    store_timestamp_ms: int = 0
    store_host: tuple[str, int] = ("0.0.0.0", 0)  # noqa: S104 - room for the store's own
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def encode_record(values: RecordValues, *, properties_crc: bool = False) -> bytes:
    """Encode one record: V1, or V2 if the topic has more than 127 characters.

    With *properties_crc* the properties get a CRC of the record, if they leave room for it. The
    bits of the flag for IPv6 hosts are set here.

    Raises:
        MessageTooLargeError: the properties, or the record, exceed their length fields.
    """
    body, properties = values.body, values.properties
    if properties_crc:
        properties = with_crc_property(properties)
    has_crc = len(properties) > len(values.properties)  # else they leave no room
    if len(properties) > PROPERTIES_MAX_BYTES:
        raise MessageTooLargeError("a property string", len(properties), PROPERTIES_MAX_BYTES)
    born, store = encode_host(values.born_host), encode_host(values.store_host)
    sys_flag = values.sys_flag
    sys_flag |= SYS_FLAG_BORN_IPV6 if len(born) == _IPV6_HOST_BYTES else 0
    sys_flag |= SYS_FLAG_STORE_IPV6 if len(store) == _IPV6_HOST_BYTES else 0
    name = values.topic.encode()
    is_v2 = len(name) > TOPIC_V1_MAX_BYTES
    tail = b"".join(
        (
            _TAIL.pack(values.reconsume_times, values.prepared_transaction_offset, len(body)),
            body,
            (_SHORT if is_v2 else _BYTE).pack(len(name)),
            name,
            _SHORT.pack(len(properties)),
            properties,
        )
    )
    head = _HEAD.pack(
        _HEAD.size + len(born) + _STORE_TIMESTAMP.size + len(store) + len(tail),
        MAGIC_V2 if is_v2 else MAGIC_V1,
        crc32(body),
        values.queue_id,
        values.flag,
        values.queue_offset,
        values.physical_offset,
        sys_flag,
        values.born_timestamp_ms,
    )
    record = b"".join((head, born, _STORE_TIMESTAMP.pack(values.store_timestamp_ms), store, tail))
    if has_crc:
        record = record[:-CRC_PROPERTY_BYTES] + crc_property(record)
    return record


def parse_record(buffer: _Buffer, start: int, end: int) -> RecordFields | str:
    """Return the fields of the record at *start*, all of it before *end*; else the reason.

    A text and not an exception, because at the end of a log, bytes that are no record are normal.
    """
    if end - start < RECORD_MIN_BYTES:
        return f"only {end - start} bytes of the file remain"
    size, magic, *numbers, sys_flag, born_timestamp = _HEAD.unpack_from(buffer, start)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return f"invalid magic code: {magic & 0xFFFFFFFF:#010x}"
    if not RECORD_MIN_BYTES <= size <= end - start:
        return f"invalid record size: {size} bytes, and {end - start} bytes of the file remain"
    born_start = start + _HEAD.size
    store_time = born_start + _host_bytes(sys_flag, SYS_FLAG_BORN_IPV6)
    store_start = store_time + _STORE_TIMESTAMP.size
    store_end = store_start + _host_bytes(sys_flag, SYS_FLAG_STORE_IPV6)
    stop = start + size
    body_start = store_end + _TAIL.size
    if body_start > stop:
        return f"invalid record size: {size} bytes are too few for its hosts"
    reconsume_times, prepared, body_bytes = _TAIL.unpack_from(buffer, store_end)
    body_end = body_start + body_bytes
    topic_length = _BYTE if magic == MAGIC_V1 else _SHORT
    topic = _counted(buffer, body_end, stop, topic_length) if body_bytes >= 0 else None
    properties = _counted(buffer, topic[1], stop, _SHORT) if topic else None
    if topic is None or properties is None or properties[1] != stop:
        return f"the lengths of its parts do not add up to its size of {size}"
    (store_timestamp,) = _STORE_TIMESTAMP.unpack_from(buffer, store_time)
    return RecordFields._make(
        (
            size,
            *numbers,  # from the CRC to the physical offset
            sys_flag,
            born_timestamp,
            born_start,
            store_timestamp,
            store_start,
            store_end,
            reconsume_times,
            prepared,
            body_start,
            body_end,
            *topic,
            properties[0],
        )
    )


def decode_record(record: bytes, path: str, physical_offset: int) -> StoredMessage:
    """Return the message in *record*, the bytes at *physical_offset* in the file *path*.

    Raises:
        CorruptRecordError: they are not exactly one record, or it belongs to another place, or its
            body does not match its CRC or cannot be inflated.
        MessageTooLargeError: its body inflates to more than the limit.
    """
    fields = parse_record(record, 0, len(record))
    if isinstance(fields, str):
        raise CorruptRecordError(path, physical_offset, fields)
    if fields.size != len(record):
        raise CorruptRecordError(
            path, physical_offset, f"its size is {fields.size}, not {len(record)}"
        )
    # A copied or moved file has whole records, which are not those of this place.
    if fields.physical_offset != physical_offset:
        raise CorruptRecordError(
            path, physical_offset, f"its physical offset field is {fields.physical_offset}"
        )
    body = record[fields.body_start : fields.body_end]
    if body and crc32(body) != fields.body_crc:
        raise CorruptRecordError(path, physical_offset, "its body does not match its CRC")
    if not matches_crc_property(record, fields.properties_start):
        raise CorruptRecordError(path, physical_offset, "it does not match its CRC property")
    try:
        topic = record[fields.topic_start : fields.topic_end].decode()
    except UnicodeDecodeError:
        raise CorruptRecordError(path, physical_offset, "its topic is not UTF-8") from None
    return StoredMessage(
        topic=topic,
        body=inflate(body, fields.sys_flag, path, physical_offset),
        properties=decode_properties(record[fields.properties_start :]),
        **decode_head(record[: fields.body_start]),
    )


def decode_head(head: bytes) -> dict[str, Any]:
    """Return the fields of a checked record that are before its body, as StoredMessage has them."""
    size, _, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp = (
        _HEAD.unpack_from(head)
    )
    store_time = _HEAD.size + _host_bytes(sys_flag, SYS_FLAG_BORN_IPV6)
    store_host = head[store_time + _STORE_TIMESTAMP.size : -_TAIL.size]
    reconsume_times, prepared, _ = _TAIL.unpack_from(head, len(head) - _TAIL.size)
    return {
        "queue_id": queue_id,
        "queue_offset": QueueOffset(queue_offset),
        "physical_offset": PhysicalOffset(physical_offset),
        "size": size,
        "offset_message_id": (store_host + _STORE_TIMESTAMP.pack(physical_offset)).hex().upper(),
        "flag": flag,
        "sys_flag": sys_flag,
        "body_crc": body_crc,
        "born_timestamp_ms": born_timestamp,
        "born_host": _decode_host(head[_HEAD.size : store_time]),
        "store_timestamp_ms": _STORE_TIMESTAMP.unpack_from(head, store_time)[0],
        "store_host": _decode_host(store_host),
        "reconsume_times": reconsume_times,
        "prepared_transaction_offset": prepared,
    }


def checksums_match(buffer: memoryview, start: int, fields: RecordFields) -> bool:
    """Return whether the body matches its CRC, and the record the one in its properties, if any.

    An empty body always does: RocketMQ checks none (``checkMessageAndReturnSize``).
    """
    body = buffer[fields.body_start : fields.body_end]
    if body and crc32(body) != fields.body_crc:
        return False
    record = buffer[start : start + fields.size]
    return matches_crc_property(record, fields.properties_start - start)


def encode_blank(free_bytes: int) -> bytes:
    """Return the record that closes a segment with *free_bytes*, at least 8, left."""
    assert free_bytes >= BLANK_BYTES
    return _BLANK.pack(free_bytes, MAGIC_BLANK)


def is_blank(buffer: _Buffer, start: int, end: int) -> bool:
    return end - start >= BLANK_BYTES and _INT.unpack_from(buffer, start + 4)[0] == MAGIC_BLANK


def encode_host(host: tuple[str, int]) -> bytes:
    """Return address and port as in a record: 8 bytes for IPv4, 20 for IPv6."""
    family = socket.AF_INET6 if ":" in host[0] else socket.AF_INET
    return socket.inet_pton(family, host[0]) + _INT.pack(host[1])


@lru_cache(maxsize=_KNOWN_HOSTS)
def _decode_host(raw: bytes) -> tuple[str, int]:
    family = socket.AF_INET if len(raw) == _IPV4_HOST_BYTES else socket.AF_INET6
    return socket.inet_ntop(family, raw[:-4]), _INT.unpack(raw[-4:])[0]


def _host_bytes(sys_flag: int, ipv6_bit: int) -> int:
    return _IPV6_HOST_BYTES if sys_flag & ipv6_bit else _IPV4_HOST_BYTES


def _counted(
    buffer: _Buffer, start: int, stop: int, length: struct.Struct
) -> tuple[int, int] | None:
    """Return start and end of a field behind its length, or None when it passes *stop*."""
    first = start + length.size
    if first > stop:
        return None
    (size,) = length.unpack_from(buffer, start)
    return (first, first + size) if 0 <= size <= stop - first else None
