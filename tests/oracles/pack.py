"""The kernels of ``rocketray/kernels/pack.py`` in plain Python."""

from __future__ import annotations

import zlib

import numpy as np
from oracles.hashing import separated_key_hashes

from rocketray.hashing import java_hash_code
from rocketray.kernels._compile import Bytes, Int64s
from rocketray.kernels.drain import BATCH_HEADER_BYTES
from rocketray.kernels.layout import BODY_CRC, BORN_TIMESTAMP, FLAG, SYS_FLAG
from rocketray.kernels.pack import (
    BODY_SIZE,
    BORN_MS,
    FLAGS,
    ID_DIGITS,
    IS_ALIKE,
    IS_NUMBERED,
    KEYS_SIZE,
    NAME_END,
    OF_KEYS,
    OF_TAGS,
    ROLE,
    SYS_FLAGS,
    TAGS_CODE,
    TAIL_SIZE,
    TEXT_START,
)

_KEY_END = 2
_CRC_MASK = 0x7FFFFFFF
_INT_MIN = -(2**31)
_DIGITS_MASK = 16**ID_DIGITS - 1


def pack_messages(
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
        separated_key_hashes(own_keys, key_seed, found)
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


def number_ids(out: Bytes, prefix: Bytes, first: int) -> None:
    width = len(prefix) + ID_DIGITS
    assert len(out) % width == 0
    for i in range(len(out) // width):
        digits = f"{(first + i) & _DIGITS_MASK:0{ID_DIGITS}X}"
        out[i * width : (i + 1) * width] = np.frombuffer(
            prefix.tobytes() + digits.encode(), np.uint8
        )


def join_texts(
    texts: Bytes,
    names: Bytes,
    fields: Int64s,
    room: Bytes,
    tail_max: int,
    tails: Bytes,
    keys: Bytes,
    rows: Int64s,
) -> int:
    columns = []
    for number, field in enumerate(fields.tolist()):
        name = names[fields[number - 1, NAME_END] if number else 0 : field[NAME_END]].tobytes()
        after = texts[field[TEXT_START] :].tobytes().split(b"\x02")
        columns.append((name, after[:1] * len(rows) if field[IS_ALIKE] else after, field[ROLE]))
    all_tails = all_keys = b""
    for i, row in enumerate(rows):
        tail = own_keys = b""
        row[TAGS_CODE] = 0
        for name, values, role in columns:
            if not values[i]:
                continue
            tail += name + values[i] + b"\x02"
            if role == OF_TAGS:
                row[TAGS_CODE] = java_hash_code(values[i].decode())
            if role == OF_KEYS:
                own_keys += values[i].replace(b" ", b"\x02") + b"\x02"
        if len(tail) > tail_max:
            return -1 - i
        if len(tail) + len(room) <= tail_max:
            tail += room.tobytes()
        row[TAIL_SIZE], row[KEYS_SIZE] = len(tail), len(own_keys)
        all_tails += tail
        all_keys += own_keys
    tails[: len(all_tails)] = np.frombuffer(all_tails, np.uint8)
    keys[: len(all_keys)] = np.frombuffer(all_keys, np.uint8)
    return len(all_tails)
