"""The kernels of ``rocketray/kernels/hashing.py`` in plain Python."""

from __future__ import annotations

import zlib

import numpy as np

from rocketray.base.property_string import decode_text
from rocketray.hashing import java_hash_code
from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.hashing import KEY_END

_CRC_MASK = 0x7FFFFFFF  # RocketMQ clears the sign
_INT_MIN = -(2**31)


def hash_spans(data: Bytes, starts: Int64s, sizes: Int64s, seed: int, out: Int32s) -> None:
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        text = decode_text(bytes(data[start : start + max(size, 0)]))
        units = len(text.encode("utf-16-be")) // 2
        out[i] = _signed(seed * 31**units + java_hash_code(text))


def separated_key_hashes(keys: Bytes, seed: int, out: Int32s) -> int:
    ends = np.flatnonzero(keys == KEY_END)
    starts = np.concatenate((np.zeros(1, np.int64), ends + 1))[:-1]
    room = min(len(ends), len(out))
    hash_spans(keys, starts[:room], (ends - starts)[:room], seed, out[:room])
    out[:room][out[:room] == _INT_MIN] = 0
    np.abs(out[:room], out=out[:room])
    return len(ends)


def crc32_spans(data: Bytes, starts: Int64s, sizes: Int64s, out: Int32s) -> None:
    raw = data.data
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        out[i] = zlib.crc32(raw[start : start + max(size, 0)]) & _CRC_MASK


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
