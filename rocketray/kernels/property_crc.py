"""The CRC property: a checksum over a whole record, in the last 20 bytes of its properties.

    "__CRC32#" 0x01, ten decimal digits, the lowest first, 0x02

A record has one if the name is in that place and begins a pair; then the rest must be correct.
Source: RocketMQ 5.3.3, ``MessageDecoder.createCrc32``, config ``enabledAppendPropCRC``.
"""

from __future__ import annotations

import numpy as np

from ._compile import InBytes, InInt64s, OutBools, device, kernel
from .hashing import CRC_MASK, crc32_of
from .intrinsics import load_native_u64

CRC_PROPERTY_NAME = b"__CRC32#"
_DIGITS = 10  # of the largest 31-bit number, 2147483647
CRC_PROPERTY_BYTES = len(CRC_PROPERTY_NAME) + 1 + _DIGITS + 1
# Eight bytes, which are compared as one number.
CRC_NAME_WORD = np.uint64(int.from_bytes(CRC_PROPERTY_NAME, "little"))
CRC_NAME_BYTES = len(CRC_PROPERTY_NAME)
_NAME_END, _PAIR_END, _ZERO = 1, 2, 0x30
_SEPARATOR = np.array([_PAIR_END], np.uint8)


@device
def crc_place(data, end, property_size):
    """Return where the CRC property of the record that ends at *end* begins, or -1.

    *property_size* is that of its property string, which lies within *data*.
    """
    at = end - CRC_PROPERTY_BYTES
    if property_size < CRC_PROPERTY_BYTES or load_native_u64(data, at) != CRC_NAME_WORD:
        return -1
    return at if property_size == CRC_PROPERTY_BYTES or data[at - 1] == _PAIR_END else -1


@device
def write_crc(data, at, crc):
    """Complete the CRC property at *at*: the CRC-32 of all before it, and the separators."""
    data[at + CRC_NAME_BYTES] = _NAME_END
    number = np.int64(crc) & CRC_MASK
    for k in range(at + CRC_NAME_BYTES + 1, at + CRC_PROPERTY_BYTES - 1):
        data[k] = _ZERO + number % 10
        number //= 10
    data[at + CRC_PROPERTY_BYTES - 1] = _PAIR_END


@device
def _told_crc(data, at):
    """Return the number in the CRC property at *at*, whatever its name; -1 if there is none."""
    if data[at + CRC_NAME_BYTES] != _NAME_END or data[at + CRC_PROPERTY_BYTES - 1] != _PAIR_END:
        return -1
    told = np.int64(0)
    for k in range(_DIGITS):
        digit = np.int64(data[at + CRC_NAME_BYTES + _DIGITS - k]) - _ZERO
        if digit < 0 or digit > 9:
            return -1
        told = told * 10 + digit
    return told


@device
def crc_matches(data, start, size, property_size):
    """Return whether the whole record at *start* matches its CRC property, if it has one.

    It has one also if just the name, or the separator before it, is not as it was: then the number
    is that of the record. A property string that ends with zero was never written whole.
    """
    if property_size > 0 and data[start + size - 1] == 0:
        return False
    if property_size < CRC_PROPERTY_BYTES:
        return True
    at = start + size - CRC_PROPERTY_BYTES
    told = _told_crc(data, at)
    if crc_place(data, start + size, property_size) >= 0:
        return told == np.int64(crc32_of(0, data, start, at - start)) & CRC_MASK
    if told < 0:
        return True
    if property_size == CRC_PROPERTY_BYTES or data[at - 1] == _PAIR_END:
        crc = crc32_of(0, data, start, at - start)
    else:
        crc = crc32_of(crc32_of(0, data, start, at - 1 - start), _SEPARATOR, 0, 1)
    return told != np.int64(crc) & CRC_MASK


@kernel
def check_property_crcs(
    data: InBytes, ends: InInt64s, sizes: InInt64s, property_sizes: InInt64s, damaged: OutBools
) -> int:
    """Note which of *n* records do not match their CRC property; return how many do not.

    ``ends``, ``sizes`` int64[n] are whole records, ``property_sizes`` int64[n] their property
    strings, at their ends; ``damaged`` bool[n].
    """
    assert len(ends) == len(sizes) == len(property_sizes) == len(damaged)
    count = 0
    for i in range(len(ends)):
        assert 0 <= property_sizes[i] <= sizes[i] <= ends[i] <= len(data)
        damaged[i] = not crc_matches(data, ends[i] - sizes[i], sizes[i], property_sizes[i])
        count += damaged[i]
    return count
