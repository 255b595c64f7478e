"""Texts of many messages at once: the invalid ones, and the hashes of the keys.

Texts are spans of UTF-8 (see ``spans.py``); a size below 0 is a null. Invalid UTF-8 is hashed as
Java reads it (``hashing.py``).
"""

from __future__ import annotations

import numpy as np

from ._compile import IN_BYTES, IN_INT64S, INT, OUT_INT32S, Bytes, Int32s, Int64s, device, kernel
from .hashing import java_abs, java_hash, separated_key_hashes_plain
from .intrinsics import load_native_u64

__all__ = [
    "ANY_TEXT",
    "KEY_TEXT",
    "TAG_TEXT",
    "first_bad_text",
    "first_bad_text_plain",
    "hash_record_keys",
    "hash_record_keys_plain",
]

ANY_TEXT, KEY_TEXT, TAG_TEXT = 0, 1, 2
_NAME_END, _PAIR_END, _BLANK, _STAR, _BAR = 1, 2, 0x20, 0x2A, 0x7C
_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_TRIMMED = bytes(range(_BLANK + 1))


def first_bad_text_plain(data: Bytes, starts: Int64s, sizes: Int64s, kind: int) -> int:
    """Return the index of the first invalid span, or -1; nulls are allowed.

    No text is empty or holds a separator of properties. A KEY_TEXT has no blank. A TAG_TEXT is
    not ``*``, has no ``||`` and neither begins nor ends with a character that Java trims, 0x00 to
    0x20.
    """
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        text = data[start : start + max(size, 0)].tobytes()
        bad = not text or b"\x01" in text or b"\x02" in text
        bad |= kind == KEY_TEXT and b" " in text
        is_no_tag = text == b"*" or b"||" in text or text != text.strip(_TRIMMED)
        if size >= 0 and (bad or (kind == TAG_TEXT and is_no_tag)):
            return i
    return -1


@device
def _is_plain(word):
    """Return whether none of eight bytes is 0x20 or less, or a bar: no closer check is needed."""
    low = (word - _ONES * np.uint64(_BLANK + 1)) & ~word & _HIGH_BITS
    bars = word ^ (_ONES * np.uint64(_BAR))
    return low | ((bars - _ONES) & ~bars & _HIGH_BITS) == 0


@kernel(first_bad_text_plain, INT, (IN_BYTES, IN_INT64S, IN_INT64S, INT))
def first_bad_text(data, starts, sizes, kind):
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
            if byte in (_NAME_END, _PAIR_END):
                return i
            if kind == KEY_TEXT and byte == _BLANK:
                return i
            if kind == TAG_TEXT and byte == _BAR and before == _BAR:
                return i
            before = byte
            at += 1
    return -1


def hash_record_keys_plain(
    unique: Bytes,
    unique_starts: Int64s,
    unique_sizes: Int64s,
    keys: Bytes,
    key_starts: Int64s,
    key_sizes: Int64s,
    seed: int,
    hashes: Int32s,
    records: Int32s,
) -> int:
    """Hash each record's unique key, then its blank-separated keys, in order.

    Writes to ``hashes`` and ``records`` int32[≥ keys] and returns the number of keys.
    """
    found: list[tuple[bytes, int]] = []
    for i in range(len(unique_sizes)):
        texts = [_text(unique, unique_starts[i], unique_sizes[i])] if unique_sizes[i] >= 0 else []
        texts += _text(keys, key_starts[i], key_sizes[i]).split(b" ")
        found += [(text, i) for text in texts if text]
    joined = b"".join([text + b"\x02" for text, _ in found])
    separated_key_hashes_plain(np.frombuffer(joined, np.uint8), seed, hashes)
    records[: len(found)] = [i for _, i in found]
    return len(found)


@kernel(
    hash_record_keys_plain,
    INT,
    (
        IN_BYTES,
        IN_INT64S,
        IN_INT64S,
        IN_BYTES,
        IN_INT64S,
        IN_INT64S,
        INT,
        OUT_INT32S,
        OUT_INT32S,
    ),
)
def hash_record_keys(
    unique,
    unique_starts,
    unique_sizes,
    keys,
    key_starts,
    key_sizes,
    seed,
    hashes,
    records,
):
    n = len(unique_sizes)
    assert n == len(unique_starts) == len(key_starts) == len(key_sizes)
    assert len(hashes) == len(records)
    count = 0
    for i in range(n):
        if unique_sizes[i] >= 0:
            start = unique_starts[i]
            assert 0 <= start <= len(unique) - unique_sizes[i]
            assert count < len(hashes)
            hashes[count] = java_abs(java_hash(unique, start, start + unique_sizes[i], seed))
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
                    hashes[count] = java_abs(java_hash(keys, start, at, seed))
                    records[count] = i
                    count += 1
                start = at + 1
    return count


def _text(data: Bytes, start: int, size: int) -> bytes:
    return data[start : start + max(size, 0)].tobytes()
