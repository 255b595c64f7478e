"""An encoded batch, as a producer hands it to a shard: encoded records, and their digests.

A batch is of one topic and goes to one queue. Its records are RocketMQ's, V1 or V2, and complete
except for the five fields that only the store knows, which are 0: queue id, queue offset, physical
offset, store timestamp and store host. An imported batch keeps its store timestamps.

Frame of a packed batch, little-endian, without gaps:
    magic "RRB1" · u32 records n · u32 keys k · u32 flags · u64 record bytes
    i64[n] tags codes · i32[n] sizes · i32[k] key hashes · i32[k] key records · records
    i64 ownership epoch, only with its flag

Unpacking checks every length and does not copy aligned data, so the views live as long as the
buffer and change with it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rocketray.base.quantity import counted
from rocketray.errors import InvalidMessageError
from rocketray.hashing import crc32, tags_code
from rocketray.kernels.append import is_whole_batch
from rocketray.kernels.drain import BATCH_HAS_OWNER, BATCH_MAGIC
from rocketray.message import IMPORTED_OFFSET_ID, Message
from rocketray.store.formats.property_crc import with_crc_property

from .batch_form import (
    FRAME_HEADER,
    EncodedBatch,
    RecordCollector,
    RecordOptions,
    born_host_form,
    record_header,
    topic_form,
)

_KEEPS_STORE_TIMES = 1  # a flag: the records keep their store timestamps, see batch_form
_FLAGS = _KEEPS_STORE_TIMES | BATCH_HAS_OWNER
_FLAGS_AT = 12  # in the header
_EPOCH = struct.Struct("<q")
_PLAIN = RecordOptions()


class Packing(Protocol):
    """A batch that is packed where it is sent from, such as in a ring: without a copy."""

    @property
    def packed_bytes(self) -> int:
        """The size of its frame."""

    def pack_into(self, out: npt.NDArray[np.uint8]) -> None:
        """Write its frame to *out* uint8[packed_bytes]."""


def encode_messages(
    messages: Sequence[Message],
    *,
    born_host: tuple[str, int],
    clock_ms: Callable[[], int],
    options: RecordOptions = _PLAIN,
) -> EncodedBatch:
    """Encode messages of one topic, in their order.

    A message without a born timestamp gets the clock's. Raises :class:`InvalidMessageError` for no
    messages or several topics, :class:`MessageTooLargeError` for too long a property string.
    """
    if not messages:
        raise InvalidMessageError("a batch has no messages; send at least one")
    topic = messages[0].topic
    form, host = topic_form(topic), born_host_form(*born_host)
    header = record_header(len(host.encoded), options.store_host_bytes)
    no_host = bytes(options.store_host_bytes)
    every_sys_flag = host.sys_flag | options.every_sys_flag
    fixed = header.size + len(form.field) + 2
    now_ms = clock_ms()
    collected = RecordCollector(topic)
    for number, message in enumerate(messages):
        if message.topic != topic:
            raise InvalidMessageError(
                f"a batch is of one topic: message {number} is for {message.topic!r}, "
                f"the first for {topic!r}; send them separately"
            )
        body, properties, flags = _transformed(message, options)
        born_ms = now_ms if message.born_timestamp_ms is None else message.born_timestamp_ms
        head = header.pack(
            fixed + len(body) + len(properties), form.magic, crc32(body), 0, message.flag, 0, 0,
            every_sys_flag | flags, born_ms, host.encoded, 0, no_host, 0, 0, len(body),
        )  # fmt: skip
        tail = len(properties).to_bytes(2, "big") + properties
        imported_id = message.properties.get(IMPORTED_OFFSET_ID, "")  # indexed like a key
        keys = (message.unique_key or "", *message.keys, imported_id)
        collected.add(
            b"".join((head, body, form.field, tail)),
            tags_code(message.tags),
            [key.encode() for key in keys],
        )
    return collected.encode(keeps_store_times=False)


def _transformed(message: Message, options: RecordOptions) -> tuple[bytes, bytes, int]:
    """Return body and properties in stored form, and the matching SYSFLAG bits."""
    body, properties = message.body, message.encoded_properties()
    if options.properties_crc:
        properties = with_crc_property(properties)
    if options.compression is None:
        return body, properties, 0
    stored = options.compression.compress(body)
    return stored, properties, 0 if stored is body else options.compression.sys_flag


def pack_batch(batch: EncodedBatch) -> bytes:
    """Return the batch as one frame."""
    flags = _KEEPS_STORE_TIMES if batch.keeps_store_times else 0
    epoch = b""
    if batch.owner_epoch:
        flags, epoch = flags | BATCH_HAS_OWNER, _EPOCH.pack(batch.owner_epoch)
    counts = len(batch.sizes), len(batch.key_hashes), flags, len(batch.records)
    arrays = (batch.tags_codes, batch.sizes, batch.key_hashes, batch.key_records, batch.records)
    header = FRAME_HEADER.pack(BATCH_MAGIC, *counts)
    return b"".join((header, *[array.data for array in arrays], epoch))


def packed(packing: Packing) -> bytes:
    """Return a batch in memory of its own."""
    frame = np.empty(packing.packed_bytes, np.uint8)
    packing.pack_into(frame)
    return frame.tobytes()


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch that is packed already: a :class:`Packing`."""

    frame: bytes

    @property
    def packed_bytes(self) -> int:
        return len(self.frame)

    def pack_into(self, out: npt.NDArray[np.uint8]) -> None:
        out[:] = np.frombuffer(self.frame, np.uint8)


@dataclass(frozen=True, slots=True)
class Owned:
    """A batch without an ownership epoch, and the epoch that it gets: a :class:`Packing`."""

    packing: Packing
    epoch: int

    @property
    def packed_bytes(self) -> int:
        return self.packing.packed_bytes + _EPOCH.size

    def pack_into(self, out: npt.NDArray[np.uint8]) -> None:
        end = len(out) - _EPOCH.size
        self.packing.pack_into(out[:end])
        out[_FLAGS_AT] |= BATCH_HAS_OWNER
        _EPOCH.pack_into(out.data, end, self.epoch)


def unpack_batch(buffer: bytes | bytearray | memoryview) -> EncodedBatch:
    """Return the batch in a frame that fills *buffer* exactly, as views of it.

    Raises :class:`InvalidMessageError` when any length or count does not agree with the others.
    The records themselves are checked when they are appended.
    """
    if len(buffer) < FRAME_HEADER.size:
        raise InvalidMessageError(f"a packed batch of {len(buffer)} bytes has no complete header")
    magic, records, keys, flags, total = FRAME_HEADER.unpack_from(buffer)
    if magic != BATCH_MAGIC or flags & ~_FLAGS:
        raise InvalidMessageError(
            f"a packed batch begins with {magic!r}, not {BATCH_MAGIC!r}: sender and receiver must "
            "have the same version of rocketray"
        )
    has_owner = bool(flags & BATCH_HAS_OWNER)
    # A record has an i64 and an i32 beside it, and a key two i32.
    expected = FRAME_HEADER.size + 12 * records + 8 * keys + total + _EPOCH.size * has_owner
    if expected != len(buffer):
        raise InvalidMessageError(
            f"a packed batch of {records} records and {keys} keys should have {expected} bytes, "
            f"not {len(buffer)}"
        )
    at = FRAME_HEADER.size
    codes = _aligned(buffer, np.int64, records, at)
    sizes = _aligned(buffer, np.int32, records, at + 8 * records)
    at += 12 * records
    hashes = _aligned(buffer, np.int32, keys, at)
    key_records = _aligned(buffer, np.int32, keys, at + 4 * keys)
    if not is_whole_batch(sizes, key_records, total):
        raise InvalidMessageError(
            f"the record sizes or key numbers of a packed batch of {counted(records, 'record')} "
            f"disagree with its {total} bytes"
        )
    raw = np.frombuffer(buffer, np.uint8, total, at + 8 * keys)
    [epoch] = _EPOCH.unpack_from(buffer, len(buffer) - _EPOCH.size) if has_owner else (0,)
    # An epoch is at least 1 where the flag says that there is one.
    if epoch < has_owner:
        raise InvalidMessageError(f"the ownership epoch of a packed batch is {epoch}")
    keeps_store_times = bool(flags & _KEEPS_STORE_TIMES)
    return EncodedBatch(raw, sizes, codes, hashes, key_records, keeps_store_times, epoch)


def _aligned(
    buffer: bytes | bytearray | memoryview, dtype: type[Any], count: int, at: int
) -> npt.NDArray[Any]:
    array = np.frombuffer(buffer, dtype, count, at)
    # Kernels are compiled for aligned arrays, and a frame may begin anywhere in its buffer.
    return array if array.flags.aligned else array.copy()
