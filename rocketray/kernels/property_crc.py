"""The CRC property: a checksum over a whole record, in the last 20 bytes of its properties.

    "__CRC32#" 0x01, ten decimal digits, the lowest first, 0x02

A record has one if the name is in that place and begins a pair; then the rest must be correct.
Source: RocketMQ 5.3.3, ``MessageDecoder.createCrc32``, config ``enabledAppendPropCRC``.
"""

from __future__ import annotations

import numpy as np

from ._compile import InBytes, InInt32s, InInt64s, OutInt64s, kernel
from .intrinsics import load_native_u64

__all__ = [
    "CRC_NAME_WORD",
    "CRC_PROPERTY_BYTES",
    "CRC_PROPERTY_NAME",
    "may_hold_crc_property",
    "read_property_crcs",
]

CRC_PROPERTY_NAME = b"__CRC32#"
_DIGITS = 10
CRC_PROPERTY_BYTES = len(CRC_PROPERTY_NAME) + 1 + _DIGITS + 1
CRC_NAME_WORD = np.uint64(int.from_bytes(CRC_PROPERTY_NAME, "little"))
_NAME_END, _PAIR_END, _ZERO = 1, 2, 0x30
_NONE, _BAD = -1, -2


@kernel
def may_hold_crc_property(records: InBytes, sizes: InInt32s) -> bool:
    """Return whether the name of a CRC property is in its place in any of *n* records.

    The records lie back to back; ``sizes`` int32[n] add up to the length of ``records``.
    """
    end = np.int64(0)
    for i in range(len(sizes)):
        end += sizes[i]
        assert 0 <= end <= len(records)
        if sizes[i] < CRC_PROPERTY_BYTES:
            continue
        if load_native_u64(records, end - CRC_PROPERTY_BYTES) == CRC_NAME_WORD:
            return True
    return False


@kernel
def read_property_crcs(data: InBytes, starts: InInt64s, sizes: InInt64s, out: OutInt64s) -> int:
    """Read the CRC property of each of *n* records; return how many have one.

    ``starts``, ``sizes`` int64[n] are whole records; ``out`` int64[n] receives the number, -1
    if there is none, -2 if it is not made of digits.
    """
    assert len(starts) == len(sizes) == len(out)
    count = 0
    for i in range(len(starts)):
        out[i] = _NONE
        assert 0 <= starts[i] <= len(data) - sizes[i]
        if sizes[i] < CRC_PROPERTY_BYTES + 2:
            continue
        at = starts[i] + sizes[i] - CRC_PROPERTY_BYTES
        if load_native_u64(data, at) != CRC_NAME_WORD:
            continue
        is_all = data[at - 2] == 0 and data[at - 1] == CRC_PROPERTY_BYTES  # the string's length
        if data[at - 1] != _PAIR_END and not is_all:
            continue
        count += 1
        out[i] = _BAD
        if data[at + 8] != _NAME_END or data[at + CRC_PROPERTY_BYTES - 1] != _PAIR_END:
            continue
        value = 0
        for k in range(_DIGITS):
            digit = int(data[at + 8 + _DIGITS - k]) - _ZERO
            if digit < 0 or digit > 9:
                value = _BAD
                break
            value = value * 10 + digit
        out[i] = value
    return count
