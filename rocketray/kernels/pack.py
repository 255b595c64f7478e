"""Collected messages to a packed batch, the form that a producer hands to a shard, in one call.

The batch's layout is that of ``store/batches/encoded_batch.py``; the caller writes its header. A
record's properties are its unique key, if the producer numbers it, and then its *tail*, the
ready-made rest of the property string. A unique key is a prefix that all messages of a producer
share, and twelve hex digits that count up from message to message.
"""

from __future__ import annotations

import zlib

import numpy as np

from rocketray.hashing import java_hash_code

from ._compile import (
    IN_BYTES,
    IN_INT64_ROWS,
    INT,
    NOTHING,
    OUT_BYTES,
    Bytes,
    Int64s,
    device,
    kernel,
)
from .drain import BATCH_HEADER_BYTES
from .hashing import crc32_spans, java_abs, java_hash, separated_key_hashes_plain
from .intrinsics import copy, store_i16, store_i32, store_i64
from .layout import BODY_CRC, BORN_TIMESTAMP, FLAG, SYS_FLAG
from .spans import copy_span

__all__ = [
    "BODY_SIZE",
    "BORN_MS",
    "COLUMN_COUNT",
    "FLAGS",
    "ID_DIGITS",
    "IS_NUMBERED",
    "KEYS_SIZE",
    "SYS_FLAGS",
    "TAGS_CODE",
    "TAIL_SIZE",
    "number_ids",
    "number_ids_plain",
    "pack_messages",
    "pack_messages_plain",
]

ID_DIGITS = 12
_KEY_END = _PAIR_END = 2
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_CRC_MASK = 0x7FFFFFFF
_INT_MIN = -(2**31)
_DIGITS_MASK = 16**ID_DIGITS - 1


# The columns of the matrix with the numbers of all messages, int64[n, 8].
BODY_SIZE, TAIL_SIZE, KEYS_SIZE, TAGS_CODE, FLAGS, SYS_FLAGS, BORN_MS = range(7)
IS_NUMBERED = 7  # 1: the producer's unique key is put before the tail
COLUMN_COUNT = 8


def pack_messages_plain(
    out: Bytes,
    header: Bytes,
    topic_field: Bytes,
    key_seed: int,
    id_field: Bytes,
    id_seed: int,
    first_id: int,
    bodies: Bytes,
    tails: Bytes,
    keys: Bytes,
    rows: Int64s,
) -> int:
    """Write the batch behind its header and return its end.

    ``header`` is everything of a record before its body. ``id_field`` is the property of the
    unique key up to the digits, *id_seed* the hash of the topic, ``#`` and the prefix, *key_seed*
    that of the topic and ``#``. ``bodies``, ``tails`` and ``keys`` lie back to back; each key ends
    with 0x02. ``out`` uint8 must be as long as the batch is.
    """
    n = len(rows)
    key_count = int((keys == _KEY_END).sum() + rows[:, IS_NUMBERED].sum())
    codes = rows[:, TAGS_CODE].astype("=i8").tobytes()
    sizes, hashes, key_records, records = [], [], [], []
    body_at = tail_at = key_at = 0
    for i, row in enumerate(rows.tolist()):
        body = bodies[body_at : body_at + row[BODY_SIZE]].tobytes()
        tail = tails[tail_at : tail_at + row[TAIL_SIZE]].tobytes()
        own_keys = keys[key_at : key_at + row[KEYS_SIZE]]
        if row[IS_NUMBERED]:
            digits = f"{first_id + i:0{ID_DIGITS}X}"
            tail = id_field.tobytes() + digits.encode() + b"\x02" + tail
            value = (id_seed * 31**ID_DIGITS + java_hash_code(digits) + 2**31) % 2**32 - 2**31
            hashes.append(np.array([0 if value == _INT_MIN else abs(value)], np.int32))
            key_records.append(i)
        found = np.empty(int((own_keys == _KEY_END).sum()), np.int32)
        separated_key_hashes_plain(own_keys, key_seed, found)
        hashes.append(found)
        key_records += [i] * len(found)
        fields = bytearray(header.tobytes())
        after = body + topic_field.tobytes() + len(tail).to_bytes(2, "big") + tail
        sizes.append(len(fields) + len(after))
        for at, number, width in (
            (0, sizes[-1], 4),
            (BODY_CRC, zlib.crc32(body) & _CRC_MASK, 4),
            (FLAG, row[FLAGS], 4),
            (SYS_FLAG, row[SYS_FLAGS], 4),
            (BORN_TIMESTAMP, row[BORN_MS], 8),
            (len(fields) - 4, len(body), 4),
        ):
            fields[at : at + width] = number.to_bytes(width, "big", signed=True)
        records.append(bytes(fields) + after)
        body_at += len(body)
        tail_at += row[TAIL_SIZE]
        key_at += len(own_keys)
    packed = b"".join(
        [
            codes,
            np.array(sizes, np.int32).tobytes(),
            *[part.tobytes() for part in hashes],
            np.array(key_records, np.int32).tobytes(),
            *records,
        ]
    )
    assert len(key_records) == key_count
    assert BATCH_HEADER_BYTES + len(packed) == len(out)
    assert n == len(sizes)
    out[BATCH_HEADER_BYTES:] = np.frombuffer(packed, np.uint8)
    return len(out)


@device
def _write_digits(out, at, number):
    """Write twelve hex digits."""
    for i in range(ID_DIGITS):
        out[at + ID_DIGITS - 1 - i] = _HEX[number & 15]
        number >>= 4


def number_ids_plain(out: Bytes, prefix: Bytes, first: int) -> None:
    """Fill *out* with unique keys, back to back: *prefix*, and the numbers from *first* on."""
    width = len(prefix) + ID_DIGITS
    assert len(out) % width == 0
    for i in range(len(out) // width):
        digits = f"{(first + i) & _DIGITS_MASK:0{ID_DIGITS}X}"
        out[i * width : (i + 1) * width] = np.frombuffer(
            prefix.tobytes() + digits.encode(), np.uint8
        )


@kernel(number_ids_plain, NOTHING, (OUT_BYTES, IN_BYTES, INT))
def number_ids(out, prefix, first):
    width = len(prefix) + ID_DIGITS
    assert len(out) % width == 0
    for i in range(len(out) // width):
        at = i * width
        copy(out, at, prefix, 0, len(prefix))
        _write_digits(out, at + len(prefix), first + i)


@kernel(
    pack_messages_plain,
    INT,
    (
        OUT_BYTES,
        IN_BYTES,
        IN_BYTES,
        INT,
        IN_BYTES,
        INT,
        INT,
        IN_BYTES,
        IN_BYTES,
        IN_BYTES,
        IN_INT64_ROWS,
    ),
)
def pack_messages(
    out,
    header,
    topic_field,
    key_seed,
    id_field,
    id_seed,
    first_id,
    bodies,
    tails,
    keys,
    rows,
):
    n = len(rows)
    key_count = 0
    for i in range(len(keys)):
        key_count += keys[i] == _KEY_END
    id_bytes = len(id_field) + ID_DIGITS + 1
    fixed = len(header) + len(topic_field) + 2
    body_starts, body_sizes = np.empty(n, np.int64), np.empty(n, np.int64)
    body_bytes, tail_bytes, keys_bytes, id_count = 0, 0, 0, 0
    for i in range(n):
        body_starts[i], body_sizes[i] = body_bytes, rows[i, BODY_SIZE]
        assert rows[i, BODY_SIZE] >= 0
        assert rows[i, TAIL_SIZE] >= 0
        assert rows[i, KEYS_SIZE] >= 0
        body_bytes += rows[i, BODY_SIZE]
        tail_bytes += rows[i, TAIL_SIZE]
        keys_bytes += rows[i, KEYS_SIZE]
        id_count += rows[i, IS_NUMBERED] != 0
    assert body_bytes == len(bodies)
    assert tail_bytes == len(tails)
    assert keys_bytes == len(keys)
    key_count += id_count
    start = BATCH_HEADER_BYTES
    codes = out[start : start + 8 * n].view(np.int64)
    start += 8 * n
    sizes = out[start : start + 4 * n].view(np.int32)
    start += 4 * n
    hashes = out[start : start + 4 * key_count].view(np.int32)
    start += 4 * key_count
    key_records = out[start : start + 4 * key_count].view(np.int32)
    start += 4 * key_count
    assert start + n * fixed + body_bytes + tail_bytes + id_count * id_bytes == len(out)
    crcs = np.empty(n, np.int32)
    crc32_spans(bodies, body_starts, body_sizes, crcs)
    key, key_at, tail_at = 0, 0, 0
    for i in range(n):
        body_size, tail_size = rows[i, BODY_SIZE], rows[i, TAIL_SIZE]
        is_numbered = rows[i, IS_NUMBERED] != 0
        property_bytes = tail_size + id_bytes if is_numbered else tail_size
        size = fixed + body_size + property_bytes
        codes[i] = rows[i, TAGS_CODE]
        sizes[i] = size
        copy(out, start, header, 0, len(header))
        store_i32(out, start, size)
        store_i32(out, start + BODY_CRC, crcs[i])
        store_i32(out, start + FLAG, rows[i, FLAGS])
        store_i32(out, start + SYS_FLAG, rows[i, SYS_FLAGS])
        store_i64(out, start + BORN_TIMESTAMP, rows[i, BORN_MS])
        at = start + len(header)
        store_i32(out, at - 4, body_size)
        copy_span(out, at, bodies, body_starts[i], body_size)
        at += body_size
        copy(out, at, topic_field, 0, len(topic_field))
        at += len(topic_field)
        store_i16(out, at, property_bytes)
        at += 2
        if is_numbered:
            copy(out, at, id_field, 0, len(id_field))
            at += len(id_field)
            _write_digits(out, at, first_id + i)
            hashes[key] = java_abs(java_hash(out, at, at + ID_DIGITS, id_seed))
            key_records[key] = i
            key += 1
            out[at + ID_DIGITS] = _PAIR_END
            at += ID_DIGITS + 1
        copy_span(out, at, tails, tail_at, tail_size)
        tail_at += tail_size
        start += size
        end = key_at + rows[i, KEYS_SIZE]
        for j in range(key_at, end):
            if keys[j] == _KEY_END:
                hashes[key] = java_abs(java_hash(keys, key_at, j, key_seed))
                key_records[key] = i
                key += 1
                key_at = j + 1
        assert key_at == end
    return start
