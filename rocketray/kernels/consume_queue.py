"""Reads of consume queue segments: plain ranges, and scans for tags codes and filters' bits.

An entry is 20 bytes, big-endian: i64 physical offset, i32 record size, i64 tags code. The tags
code is the hash of the tag, sign-extended, so its low 32 bits are compared. At or below
``TAGS_CODE_EXT_MAX`` it is the address of a ConsumeQueueExt unit and says nothing about the tag:
such an entry passes, and the later exact comparison decides.

A ConsumeQueueExt unit is i16 size | i64 tags code | i64 store time | i16 bitmap bytes | bitmap,
big-endian; bit *j* of a bitmap is ``1 << (j % 8)`` of byte ``j // 8``. The field of an entry that
points to one is its offset, with the sign bit set.
"""

from __future__ import annotations

import numpy as np

from ._compile import InBytes, InInt32s, InInt64s, OutInt32s, OutInt64s, device, kernel
from .intrinsics import load_i16, load_i32, load_i64
from .layout import ENTRY_BYTES, TAGS_CODE_EXT_MAX

UNIT_BYTES = 20  # without its bitmap
_TAGS_CODE, _STORE_TIME, _BITMAP_BYTES = 2, 10, 18  # in a unit
_FIELD = 12  # in a queue entry
_ADDRESS_BASE = -(1 << 63)  # the sign bit


@device
def _scan_for_one(raw, first, count, code, out):
    found = 0
    for number in range(first, first + count):
        value = load_i64(raw, number * ENTRY_BYTES + 12)
        out[found] = number  # always written, kept by the next line: no mispredicted branch
        found += (value <= TAGS_CODE_EXT_MAX) | (np.int32(value) == code)
    return found


@device
def _scan_for_four(raw, first, count, a, b, c, d, out):
    found = 0
    for number in range(first, first + count):
        value = load_i64(raw, number * ENTRY_BYTES + 12)
        low = np.int32(value)
        out[found] = number
        found += (value <= TAGS_CODE_EXT_MAX) | (low == a) | (low == b) | (low == c) | (low == d)
    return found


@device
def _bit_of(code):
    """Return one of 2048 bits, by the high bits of a product that spreads neighbouring hashes."""
    # A prime near 2**32 divided by the golden ratio (Knuth's multiplicative hash). The top 11 of
    # its low 32 bits depend on all bits of the code, and 2048 bits are 256 bytes of the first-level
    # cache.
    product = np.uint64(np.uint32(code)) * np.uint64(0x9E3779B1)
    return (product >> np.uint64(21)) & np.uint64(2047)


@device
def _scan_for_many(raw, first, count, codes, out):
    """Find all entries that share a bit with a code, a few more, then compare these exactly."""
    bits = np.zeros(2048 // 64, np.uint64)
    for i in range(len(codes)):
        bit = _bit_of(codes[i])
        bits[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
    likely = 0
    for number in range(first, first + count):
        value = load_i64(raw, number * ENTRY_BYTES + 12)
        bit = _bit_of(np.int32(value))
        is_set = (bits[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1)
        # As in _scan_for_one: always written, and counted only if it may match.
        out[likely] = number
        likely += (value <= TAGS_CODE_EXT_MAX) | (is_set != 0)
    hits = 0
    for i in range(likely):
        number = out[i]
        value = load_i64(raw, number * ENTRY_BYTES + 12)
        hit = value <= TAGS_CODE_EXT_MAX
        for k in range(len(codes)):
            hit |= np.int32(value) == codes[k]
        out[hits] = number
        hits += hit
    return hits


@kernel
def match_tags(raw: InBytes, first: int, count: int, codes: InInt32s, out: OutInt64s) -> int:
    """Find the entries with one of the tags *codes* int32[c], among *count* from *first* on.

    Writes their numbers in *raw*, ascending, to the front of *out* int64[≥ count], whose rest may
    change too, and returns their count. Without codes only entries with unit addresses match.
    """
    assert first >= 0
    assert count >= 0
    assert (first + count) * ENTRY_BYTES <= len(raw)
    assert count <= len(out)
    n = len(codes)
    if n == 1:
        return _scan_for_one(raw, first, count, codes[0], out)
    if 1 < n <= 4:
        # With two or three codes the last one is compared twice or more: one loop for all.
        c = codes[min(2, n - 1)]
        return _scan_for_four(raw, first, count, codes[0], codes[1], c, codes[n - 1], out)
    return _scan_for_many(raw, first, count, codes, out)


@kernel
def read_entries(
    raw: InBytes,
    first: int,
    count: int,
    queue_offset: int,
    physical_offsets: OutInt64s,
    sizes: OutInt32s,
    tags_codes: OutInt64s,
    queue_offsets: OutInt64s,
    at: int,
) -> int:
    """Copy *count* entries from number *first* of *raw* to the four columns, from row *at* on.

    The first has the given *queue_offset*. Returns how many of their tags codes are addresses of
    ConsumeQueueExt units.
    """
    assert first >= 0
    assert count >= 0
    assert (first + count) * ENTRY_BYTES <= len(raw)
    assert 0 <= at <= len(physical_offsets) - count
    assert len(physical_offsets) == len(sizes) == len(tags_codes) == len(queue_offsets)
    addresses = 0
    for i in range(count):
        entry = (first + i) * ENTRY_BYTES
        code = load_i64(raw, entry + 12)
        physical_offsets[at + i] = load_i64(raw, entry)
        sizes[at + i] = load_i32(raw, entry + 8)
        tags_codes[at + i] = code
        queue_offsets[at + i] = queue_offset + i
        addresses += code <= TAGS_CODE_EXT_MAX
    return addresses


@kernel
def pick_entries(
    raw: InBytes,
    numbers: InInt64s,
    count: int,
    queue_offset: int,
    physical_offsets: OutInt64s,
    sizes: OutInt32s,
    tags_codes: OutInt64s,
    queue_offsets: OutInt64s,
) -> int:
    """Copy the entries whose *numbers* int64[≥ count] ``match_tags`` found, to columns [count].

    Entry 0 of *raw* has the given *queue_offset*. Returns as :func:`read_entries`.
    """
    assert count <= len(numbers)
    assert count <= len(physical_offsets)
    assert len(physical_offsets) == len(sizes) == len(tags_codes) == len(queue_offsets)
    addresses = 0
    for i in range(count):
        entry = numbers[i] * ENTRY_BYTES
        assert 0 <= entry <= len(raw) - ENTRY_BYTES
        code = load_i64(raw, entry + 12)
        physical_offsets[i] = load_i64(raw, entry)
        sizes[i] = load_i32(raw, entry + 8)
        tags_codes[i] = code
        queue_offsets[i] = queue_offset + numbers[i]
        addresses += code <= TAGS_CODE_EXT_MAX
    return addresses


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
    hits: int,
) -> tuple[int, int]:
    """Find the entries that may match, among *count* from number *first* of *raw* on.

    An entry is left out if its unit has a store time after *after_ms* and a bitmap of
    *bitmap_bytes* in which one of *bits* int64[k] is not set. All others may match.

    *units* is the file of units that begins at *units_start*, or empty if it was removed; files
    have *segment_bytes*. Numbers of entries are written to *out*, ascending, from place *hits* on,
    until it is full. Returns the count of numbers in *out*, and the number of the entry to continue
    with: the first that was not read, or whose unit is in another file.
    """
    assert first >= 0
    assert count >= 0
    assert (first + count) * ENTRY_BYTES <= len(raw)
    assert 0 <= hits <= len(out)
    for bit in bits:
        assert 0 <= bit < 8 * bitmap_bytes
    size = UNIT_BYTES + bitmap_bytes
    for number in range(first, first + count):
        if hits == len(out):
            return hits, number
        field = load_i64(raw, number * ENTRY_BYTES + _FIELD)
        missing = 0
        if field <= TAGS_CODE_EXT_MAX:
            position = (field ^ np.int64(_ADDRESS_BASE)) - units_start
            if position < 0 or position >= segment_bytes:
                return hits, number
            if (
                position + size <= len(units)
                and load_i16(units, position) == size
                and load_i16(units, position + _BITMAP_BYTES) == bitmap_bytes
                and load_i64(units, position + _STORE_TIME) > after_ms
            ):
                for i in range(len(bits)):
                    place = position + UNIT_BYTES + (bits[i] >> 3)
                    # No branch for each bit: which are set differs from message to message.
                    missing |= ~(np.int64(units[place]) >> (bits[i] & 7)) & 1
        out[hits] = number
        hits += 1 - missing
    return hits, first + count


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
