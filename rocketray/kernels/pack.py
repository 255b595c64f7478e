"""Collected messages to a packed batch, the form that a producer hands to a shard, in one call.

Before it, ``join_texts`` makes what a batch needs of properties that are given as columns.

The batch's layout is that of ``store/batches/encoded_batch.py``; the caller writes its header. A
record's properties are its unique key, if the producer numbers it, and then its *tail*, the
ready-made rest of the property string. A unique key is a prefix that all messages of a producer
share, and twelve hex digits that count up from message to message.
"""

from __future__ import annotations

import numpy as np

from ._compile import InBytes, InInt64Rows, OutBytes, OutInt64Rows, device, kernel
from .drain import BATCH_HEADER_BYTES
from .hashing import crc32_spans, java_hash, key_hash
from .intrinsics import copy, store_i16, store_i32, store_i64
from .layout import BODY_CRC, BORN_TIMESTAMP, FLAG, SYS_FLAG
from .spans import copy_span

ID_DIGITS = 12  # 4 bytes of milliseconds and 2 of a counter
_KEY_END = _PAIR_END = 2
_BLANK = 0x20
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


# The columns of the matrix with the numbers of all messages, int64[n, 8].
BODY_SIZE, TAIL_SIZE, KEYS_SIZE, TAGS_CODE, FLAGS, SYS_FLAGS, BORN_MS = range(7)
IS_NUMBERED = 7  # 1: the producer's unique key is put before the tail
COLUMN_COUNT = 8

# Those of the matrix with the properties that messages are given with, int64[m, 4].
NAME_END, TEXT_START, IS_ALIKE, ROLE = range(4)
FIELD_COLUMNS = 4
OF_ANY, OF_TAGS, OF_KEYS = range(3)


@device
def _write_digits(out, at, number):
    """Write the low 48 bits of a number as twelve hex digits."""
    for i in range(ID_DIGITS):
        out[at + ID_DIGITS - 1 - i] = _HEX[number & 15]
        number >>= 4


@kernel
def number_ids(out: OutBytes, prefix: InBytes, first: int) -> None:
    """Fill *out* with unique keys, back to back: *prefix*, and the numbers from *first* on."""
    width = len(prefix) + ID_DIGITS
    assert len(out) % width == 0
    for i in range(len(out) // width):
        at = i * width
        copy(out, at, prefix, 0, len(prefix))
        _write_digits(out, at + len(prefix), first + i)


@kernel
def pack_messages(
    out: OutBytes,
    header: InBytes,
    topic_field: InBytes,
    key_seed: int,
    id_field: InBytes,
    id_seed: int,
    first_id: int,
    bodies: InBytes,
    tails: InBytes,
    keys: InBytes,
    rows: InInt64Rows,
) -> int:
    """Write the batch behind its header and return its end.

    ``header`` is everything of a record before its body. ``id_field`` is the property of the
    unique key up to the digits, *id_seed* the hash of the topic, ``#`` and the prefix, *key_seed*
    that of the topic and ``#``. ``bodies``, ``tails`` and ``keys`` lie back to back; each key ends
    with 0x02. ``out`` uint8 must be as long as the batch is.
    """
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
            hashes[key] = key_hash(out, at, at + ID_DIGITS, id_seed)
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
                hashes[key] = key_hash(keys, key_at, j, key_seed)
                key_records[key] = i
                key += 1
                key_at = j + 1
        assert key_at == end
    return start


@kernel
def join_texts(
    texts: InBytes,
    names: InBytes,
    fields: InInt64Rows,
    room: InBytes,
    tail_max: int,
    tails: OutBytes,
    keys: OutBytes,
    rows: OutInt64Rows,
) -> int:
    """Write the tail and the keys of each message, from its text for each of the *fields*.

    The texts of a field begin at TEXT_START, each ended by 0x02: one for each message, or one for
    all (IS_ALIKE); an empty one is absent. ``names`` has the names, each ended by 0x01, up to the
    NAME_END of its field. ``room`` is put behind a tail that stays within *tail_max* bytes with it.

    Sets TAIL_SIZE, KEYS_SIZE and TAGS_CODE of *rows*. Returns the bytes of all tails, or -1 - i for
    the first message i whose tail is longer than *tail_max*.
    """
    cursors = np.empty(len(fields), np.int64)
    for k in range(len(fields)):
        cursors[k] = fields[k, TEXT_START]
        assert cursors[k] >= 0
        assert 0 <= fields[k, NAME_END] <= len(names)
    at, keys_at = 0, 0
    for i in range(len(rows)):
        tail_start, keys_start = at, keys_at
        rows[i, TAGS_CODE] = 0
        name_start = 0
        for k in range(len(fields)):
            start = cursors[k]
            end = start
            while True:
                assert end < len(texts)
                if texts[end] == _PAIR_END:
                    break
                end += 1
            if fields[k, IS_ALIKE] == 0:
                cursors[k] = end + 1
            name_size, name_from = fields[k, NAME_END] - name_start, name_start
            name_start = fields[k, NAME_END]
            size = end + 1 - start
            if size == 1:
                continue
            assert name_size >= 0
            assert at + name_size + size <= len(tails)
            copy_span(tails, at, names, name_from, name_size)
            copy_span(tails, at + name_size, texts, start, size)
            at += name_size + size
            if fields[k, ROLE] == OF_TAGS:
                rows[i, TAGS_CODE] = java_hash(texts, start, end, 0)
            elif fields[k, ROLE] == OF_KEYS:
                assert keys_at + size <= len(keys)
                for j in range(start, end + 1):
                    # A property has blanks between keys, a batch an end behind each.
                    keys[keys_at] = _KEY_END if texts[j] == _BLANK else texts[j]
                    keys_at += 1
        if at - tail_start > tail_max:
            return -1 - i
        if at - tail_start + len(room) <= tail_max:
            assert at + len(room) <= len(tails)
            copy_span(tails, at, room, 0, len(room))
            at += len(room)
        rows[i, TAIL_SIZE] = at - tail_start
        rows[i, KEYS_SIZE] = keys_at - keys_start
    return at
