"""Texts of many messages at once: the invalid ones, and the hashes of the keys.

Texts are spans of UTF-8 (see ``spans.py``); a size below 0 is a null. Invalid UTF-8 is hashed as
Java reads it (``hashing.py``).
"""

from __future__ import annotations

import numpy as np

from ._compile import InBytes, InInt64s, OutInt32s, device, kernel
from .hashing import key_hash
from .intrinsics import load_native_u64

ANY_TEXT, KEY_TEXT, TAG_TEXT = 0, 1, 2
_PAIR_END, _BLANK, _STAR, _BAR = 2, 0x20, 0x2A, 0x7C
_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)


@device
def _is_plain(word):
    """Return whether none of eight bytes is 0x20 or less, or a bar: no closer check is needed."""
    # The high bit of a byte is set if the subtraction borrowed there. A borrow may set that of the
    # next byte, too: then the closer check finds nothing.
    low = (word - _ONES * np.uint64(_BLANK + 1)) & ~word & _HIGH_BITS
    bars = word ^ (_ONES * np.uint64(_BAR))
    return low | ((bars - _ONES) & ~bars & _HIGH_BITS) == 0


@kernel
def first_bad_text(data: InBytes, starts: InInt64s, sizes: InInt64s, kind: int) -> int:
    """Return the index of the first invalid span, or -1; nulls are allowed.

    No text is empty or holds a separator of properties or 0x00. A KEY_TEXT has no blank. A TAG_TEXT
    is not ``*``, has no ``||`` and neither begins nor ends with a character that Java trims, 0x00
    to 0x20.
    """
    assert len(starts) == len(sizes)
    for i in range(len(starts)):
        size = sizes[i]
        if size < 0:
            continue
        start = starts[i]
        assert 0 <= start <= len(data) - size
        if size == 0:
            return i
        if kind == TAG_TEXT:
            if data[start] <= _BLANK or data[start + size - 1] <= _BLANK:
                return i
            if size == 1 and data[start] == _STAR:
                return i
        before = np.uint8(0)
        at = start
        while at < start + size:
            if at + 8 <= start + size and _is_plain(load_native_u64(data, at)):
                at += 8
                before = np.uint8(0)
                continue
            byte = data[at]
            if byte <= _PAIR_END:
                return i
            if kind == KEY_TEXT and byte == _BLANK:
                return i
            if kind == TAG_TEXT and byte == _BAR and before == _BAR:
                return i
            before = byte
            at += 1
    return -1


@kernel
def hash_record_keys(
    unique: InBytes,
    unique_starts: InInt64s,
    unique_sizes: InInt64s,
    keys: InBytes,
    key_starts: InInt64s,
    key_sizes: InInt64s,
    seed: int,
    hashes: OutInt32s,
    records: OutInt32s,
) -> int:
    """Hash each record's unique key, then its blank-separated keys, in order.

    Writes to ``hashes`` and ``records`` int32[≥ keys] and returns the number of keys.
    """
    n = len(unique_sizes)
    assert n == len(unique_starts) == len(key_starts) == len(key_sizes)
    assert len(hashes) == len(records)
    count = 0
    for i in range(n):
        if unique_sizes[i] >= 0:
            start = unique_starts[i]
            assert 0 <= start <= len(unique) - unique_sizes[i]
            assert count < len(hashes)
            hashes[count] = key_hash(unique, start, start + unique_sizes[i], seed)
            records[count] = i
            count += 1
        if key_sizes[i] <= 0:
            continue
        start = key_starts[i]
        end = start + key_sizes[i]
        assert 0 <= start <= end <= len(keys)
        for at in range(start, end + 1):
            if at == end or keys[at] == _BLANK:
                if at > start:
                    assert count < len(hashes)
                    hashes[count] = key_hash(keys, start, at, seed)
                    records[count] = i
                    count += 1
                start = at + 1
    return count
