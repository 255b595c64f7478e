"""Several messages in one body: RocketMQ's batch form, as a log of RocketMQ's may hold it.

A unit: i32 size, i32 0 (magic), i32 0 (CRC), i32 flag, i32 body length, body, i16 properties
length, properties. A producer sends a batch in this form; a broker stores it as ordinary records,
but in a topic of the type BatchCQ as one record, an *inner batch*, with NEED_UNWRAP and INNER_BATCH
set.

We write no inner batches and have no BatchConsumeQueue. A scan of a log that RocketMQ wrote unpacks
them: message i has the record's queue offset + i, and all fields that a unit lacks are the
record's. Source: RocketMQ 5.3.3, ``MessageDecoder.decodeMessages``, ``decodeMessage``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from rocketray.base.property_string import decode_properties
from rocketray.errors import CorruptRecordError
from rocketray.hashing import crc32
from rocketray.message import QueueOffset, StoredMessage

from .sys_flag import INNER_BATCH, NEED_UNWRAP

_HEAD = struct.Struct(">iiiii")  # size, magic, CRC, flag, body length
_PROPERTIES_LENGTH = struct.Struct(">h")
_UNIT_MIN_BYTES = _HEAD.size + _PROPERTIES_LENGTH.size


class BatchUnit(NamedTuple):
    """One message of a batch."""

    flag: int
    body: bytes
    properties: bytes


def decode_units(batch: bytes, path: str, physical_offset: int) -> Iterator[BatchUnit]:
    """Yield the messages in the body of a batch, whose record is at *physical_offset* of *path*.

    Raises:
        CorruptRecordError: the lengths do not add up.
    """
    position = 0
    while position < len(batch):
        left = len(batch) - position
        # Refused below where no whole head is left.
        size, body_size = -1, -1
        if left >= _UNIT_MIN_BYTES:
            size, _, _, flag, body_size = _HEAD.unpack_from(batch, position)
        body_end = position + _HEAD.size + body_size
        end = position + size
        if not _UNIT_MIN_BYTES <= size <= left or not 0 <= body_size <= size - _UNIT_MIN_BYTES:
            raise _broken(path, physical_offset, position)
        (properties_size,) = _PROPERTIES_LENGTH.unpack_from(batch, body_end)
        if body_end + _PROPERTIES_LENGTH.size + properties_size != end or properties_size < 0:
            raise _broken(path, physical_offset, position)
        yield BatchUnit(
            flag, batch[position + _HEAD.size : body_end], batch[end - properties_size : end]
        )
        position = end


def unwrap(message: StoredMessage, path: str) -> Iterator[StoredMessage]:
    """Yield the messages in an inner batch; *message* itself when it is none.

    Raises:
        CorruptRecordError: the lengths in it do not add up.
    """
    both = NEED_UNWRAP | INNER_BATCH
    if message.sys_flag & both != both:
        yield message
        return
    for number, unit in enumerate(decode_units(message.body, path, message.physical_offset)):
        yield replace(
            message,
            queue_offset=QueueOffset(message.queue_offset + number),
            flag=unit.flag,
            body=unit.body,
            body_crc=crc32(unit.body),
            properties=decode_properties(unit.properties),
        )


def _broken(path: str, physical_offset: int, position: int) -> CorruptRecordError:
    return CorruptRecordError(
        path, physical_offset, f"the batch in its body is broken at byte {position}"
    )
