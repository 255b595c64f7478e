"""The ConsumeQueueExt units that queue entries point to: tags codes, and filters' bits.

A ConsumeQueueExt unit is i16 size | i64 tags code | i64 store time | i16 bitmap bytes | bitmap,
big-endian; bit *j* of a bitmap is ``1 << (j % 8)`` of byte ``j // 8``. An entry whose third field
is at most ``TAGS_CODE_EXT_MAX`` points to one: the field less the sign bit is its offset.
"""

from __future__ import annotations

import numpy as np

from ._compile import InBytes, InInt64s, OutInt64s, kernel
from .intrinsics import load_i16, load_i64
from .layout import ENTRY_BYTES, TAGS_CODE_EXT_MAX

__all__ = ["match_bits", "read_codes"]

UNIT_BYTES = 20  # without its bitmap
_TAGS_CODE, _STORE_TIME, _BITMAP_BYTES = 2, 10, 18
_FIELD = 12  # in a queue entry
_ADDRESS_BASE = -(1 << 63)


@kernel
def match_bits(
    raw: InBytes,
    first: int,
    count: int,
    units: InBytes,
    units_start: int,
    segment_bytes: int,
    bits: InInt64s,
    bitmap_bytes: int,
    after_ms: int,
    out: OutInt64s,
    found: int,
) -> tuple[int, int]:
    """Find the entries that may match, among *count* from number *first* of *raw* on.

    An entry is left out if its unit has a store time after *after_ms* and a bitmap of
    *bitmap_bytes* in which one of *bits* int64[k] is not set. All others may match.

    *units* is the file of units that begins at *units_start*, or empty if it was removed; files
    have *segment_bytes*. Numbers of entries are written to *out*, ascending, from place *found* on,
    until it is full. Returns the count of numbers in *out*, and the number of the entry to continue
    with: the first that was not read, or whose unit is in another file.
    """
    assert first >= 0
    assert count >= 0
    assert (first + count) * ENTRY_BYTES <= len(raw)
    assert 0 <= found <= len(out)
    for bit in bits:
        assert 0 <= bit < 8 * bitmap_bytes
    size = UNIT_BYTES + bitmap_bytes
    for number in range(first, first + count):
        if found == len(out):
            return found, number
        field = load_i64(raw, number * ENTRY_BYTES + _FIELD)
        missing = 0
        if field <= TAGS_CODE_EXT_MAX:
            position = (field ^ np.int64(_ADDRESS_BASE)) - units_start
            if position < 0 or position >= segment_bytes:
                return found, number
            if (
                position + size <= len(units)
                and load_i16(units, position) == size
                and load_i16(units, position + _BITMAP_BYTES) == bitmap_bytes
                and load_i64(units, position + _STORE_TIME) > after_ms
            ):
                for i in range(len(bits)):
                    place = position + UNIT_BYTES + (bits[i] >> 3)
                    missing |= ~(np.int64(units[place]) >> (bits[i] & 7)) & 1
        out[found] = number
        found += 1 - missing
    return found, first + count


@kernel
def read_codes(
    fields: OutInt64s, at: int, units: InBytes, units_start: int, segment_bytes: int
) -> int:
    """Replace the addresses of units among *fields*, from row *at* on, by the units' tags codes.

    *units* as in :func:`match_bits`. An address without a unit stays. Returns the row to continue
    with: the first whose unit is in another file.
    """
    assert 0 <= at <= len(fields)
    for row in range(at, len(fields)):
        field = fields[row]
        if field > TAGS_CODE_EXT_MAX:
            continue
        position = (field ^ np.int64(_ADDRESS_BASE)) - units_start
        if position < 0 or position >= segment_bytes:
            return row
        if position + UNIT_BYTES > len(units):
            continue
        bitmap_bytes = load_i16(units, position + _BITMAP_BYTES)
        if bitmap_bytes >= 0 and load_i16(units, position) == UNIT_BYTES + bitmap_bytes:
            fields[row] = load_i64(units, position + _TAGS_CODE)
    return len(fields)
