"""Hashes over many texts at once: Java's ``hashCode``, index key hashes, CRC-32 of bodies.

Texts are UTF-8 in one buffer, hashed as the UTF-16 units that Java sees when it reads them: invalid
UTF-8 becomes the U+FFFDs of its decoder (base/property_string.py). Nothing is read beyond a span.
Spans outside the buffer are a bug of ours, so they are asserted.

CRC-32 comes from a function that the ``isal`` wheel happens to export (35 GB/s). It is not an API:
if it is missing, tables take its place.
"""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any

import numpy as np

from ._compile import InBytes, InInt64s, OutInt32s, device, external, kernel, types
from .intrinsics import address, load_native_u64

_POLYNOMIAL = 0xEDB88320  # of CRC-32 (IEEE), lowest bit first
_ISAL_SYMBOL = "crc32_gzip_refl"
KEY_END = 2  # separates properties, so no key contains it
CRC_MASK = 0x7FFFFFFF  # RocketMQ clears the sign
_INT_MIN = -(2**31)  # Java's abs returns it unchanged
_REPLACEMENT = 0xFFFD
# Powers of Java's 31, for one, two, four and eight characters at once.
_POWER_1, _POWER_2, _POWER_4, _POWER_8 = np.uint64(31), np.uint64(31**2), np.uint64(31**4), 31**8
_HIGH_BITS = np.uint64(0x8080808080808080)
# Every other byte, and every other pair of bytes, of a word of eight.
_EVEN_BYTES, _EVEN_PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)


@device
def _hash_of_eight(word):
    """Return the hash of eight ASCII bytes, lowest byte first: 8 bytes, 4 pairs, 2 fours.

    Neighbouring links hold the terms; none overflows its link: 127 * 31 + 127 < 2**16, and
    4064 * 31**2 + 4064 < 2**32.
    """
    pairs = (word & _EVEN_BYTES) * _POWER_1 + ((word >> np.uint64(8)) & _EVEN_BYTES)
    fours = (pairs & _EVEN_PAIRS) * _POWER_2 + ((pairs >> np.uint64(16)) & _EVEN_PAIRS)
    return np.int64((fours & np.uint64(0xFFFFFFFF)) * _POWER_4 + (fours >> np.uint64(32)))


@device
def _character(data, at, end):
    """Return the character at *at* and its number of bytes, as Java's decoder reads them.

    An invalid part is read as U+FFFD. Its bytes are those that could begin a character, so the next
    character begins behind them. A surrogate in three bytes is one such part.
    """
    lead = np.int64(data[at])
    if lead < 0x80:
        return lead, 1
    if lead < 0xC2 or lead > 0xF4:
        return np.int64(_REPLACEMENT), 1
    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80  # shortest forms only
    high = 0x8F if lead == 0xF4 else 0xBF  # up to U+10FFFF
    character = lead & (0x7F >> size)
    for i in range(1, size):
        if at + i >= end:
            return np.int64(_REPLACEMENT), i
        byte = np.int64(data[at + i])
        if byte < low or byte > high:
            return np.int64(_REPLACEMENT), i
        character = character << 6 | (byte & 0x3F)
        low, high = 0x80, 0xBF
    if 0xD800 <= character <= 0xDFFF:
        return np.int64(_REPLACEMENT), size
    return character, size


@device
def java_hash(data, start, end, value):
    """Return ``hashCode`` of the text before, *value*, continued by a span."""
    at = start
    while at < end:
        if at + 8 <= end:
            word = load_native_u64(data, at)
            if word & _HIGH_BITS == 0:
                value = (value * _POWER_8 + _hash_of_eight(word)) & 0xFFFFFFFF
                at += 8
                continue
        unit, size = _character(data, at, end)
        at += size
        if unit > 0xFFFF:
            value = value * 31 + 0xD800 + ((unit - 0x10000) >> 10)
            unit = 0xDC00 + (unit & 0x3FF)
        value = (value * 31 + unit) & 0xFFFFFFFF
    return np.int32(value & 0xFFFFFFFF)


@device
def key_hash(data, start, end, seed):
    """Return IndexFile's hash of a key: ``abs(hashCode)``, and 0 where ``abs`` overflows."""
    value = java_hash(data, start, end, seed)
    return np.int32(0) if value == _INT_MIN else np.int32(abs(np.int64(value)))


@kernel
def hash_spans(data: InBytes, starts: InInt64s, sizes: InInt64s, seed: int, out: OutInt32s) -> None:
    """Write ``hashCode`` of each span of *data* to *out*; *seed* for an empty or absent span.

    ``starts`` int64[n], ``sizes`` int64[n], ``out`` int32[n]. *seed* is the hash of a text that
    precedes each span: 0 for none, which also makes the tags code of "no tag" 0.
    """
    assert len(starts) == len(sizes) == len(out)
    for i in range(len(starts)):
        end = starts[i] + max(sizes[i], 0)
        assert 0 <= starts[i] <= end <= len(data)
        out[i] = java_hash(data, starts[i], end, seed)


@kernel
def separated_key_hashes(keys: InBytes, seed: int, out: OutInt32s) -> int:
    """Write IndexFile's hash of keys that are each ended by 0x02, which no key holds.

    Writes as many as fit to *out* int32[k]; returns the number of keys.
    """
    start = count = 0
    for at in range(len(keys)):
        if keys[at] == KEY_END:
            if count < len(out):
                out[count] = key_hash(keys, start, at, seed)
            count += 1
            start = at + 1
    return count


def _crc_tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return ``tables[k][b]``: the CRC of byte *b* followed by *k* zero bytes."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for row in range(1, 8):
        previous = tables[row - 1]
        tables[row] = previous >> 8 ^ tables[0][previous & 0xFF]
    return tables


_TABLES = _crc_tables()


@device
def _crc32_by_tables(value, data, start, size):
    """Return the CRC-32 of what is before, *value*, continued by a span; 0 for nothing before."""
    value = ~np.uint32(value)
    end = start + size
    while start + 8 <= end:  # eight bytes a step, each through the table of its distance
        word = load_native_u64(data, start)
        low = np.uint32(word) ^ value
        high = np.uint32(word >> np.uint64(32))
        value = (
            _TABLES[7, low & 0xFF]
            ^ _TABLES[6, (low >> 8) & 0xFF]
            ^ _TABLES[5, (low >> 16) & 0xFF]
            ^ _TABLES[4, low >> 24]
            ^ _TABLES[3, high & 0xFF]
            ^ _TABLES[2, (high >> 8) & 0xFF]
            ^ _TABLES[1, (high >> 16) & 0xFF]
            ^ _TABLES[0, high >> 24]
        )
        start += 8
    while start < end:
        value = np.uint32(_TABLES[0, (value ^ data[start]) & 0xFF] ^ (value >> 8))
        start += 1
    return ~value


@device
def _crc32_by_isal(value, data, start, size):
    """Return the same, by the function of the isal wheel."""
    return _ISAL(np.uint32(value), address(data, start), np.uint64(size))


def _isal_function() -> Any:
    """Return the C function of the isal wheel, or None."""
    try:
        library = import_module("isal.isal_zlib").__file__
        if not hasattr(ctypes.CDLL(library), _ISAL_SYMBOL):
            return None
    except (ImportError, OSError):
        return None
    return external(
        _ISAL_SYMBOL, lambda: types.uint32(types.uint32, types.uintp, types.uintp), library
    )


_ISAL = _isal_function()
crc32_of = _crc32_by_tables if _ISAL is None else _crc32_by_isal


@kernel
def crc32_spans(data: InBytes, starts: InInt64s, sizes: InInt64s, out: OutInt32s) -> None:
    """Write each span's CRC-32, sign bit cleared, to *out* int32[n]; 0 for an empty span."""
    assert len(starts) == len(sizes) == len(out)
    for i in range(len(starts)):
        size = max(sizes[i], 0)
        assert 0 <= starts[i] <= starts[i] + size <= len(data)
        out[i] = crc32_of(0, data, starts[i], size) & CRC_MASK
