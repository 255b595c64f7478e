"""Property strings of many records: find values by name, compare them, list all pairs.

The rules are RocketMQ's: a pair ends at 0x02 or at the end of the string, its first 0x01 divides
name from value, a pair with an empty name or value does not count, the last duplicate wins.
Separators are found 64 bytes at a time. Source: ``MessageDecoder.string2messageProperties``.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ._compile import (
    IN_BYTES,
    IN_INT64S,
    INT,
    NOTHING,
    OUT_BOOLS,
    OUT_INT32S,
    OUT_INT64_ROWS,
    Bools,
    Bytes,
    Int32s,
    Int64s,
    device,
    kernel,
)
from .intrinsics import count_trailing_zeros, load_native_u64, separator_mask

__all__ = [
    "find_in_string",
    "find_properties",
    "find_properties_plain",
    "join_names",
    "list_pairs",
    "list_pairs_plain",
    "match_values",
    "match_values_plain",
]

_NAME_END, _PAIR_END = 1, 2
_BLOCK_BYTES = 64


@lru_cache(maxsize=1024)
def join_names(names: tuple[str, ...]) -> tuple[Bytes, Int64s]:
    """Return the texts back to back in UTF-8, and their bounds: uint8[total] and int64[n + 1]."""
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    bounds = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(name) for name in encoded], out=bounds[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), bounds


def find_properties_plain(
    segment: Bytes,
    starts: Int64s,
    sizes: Int64s,
    names: Bytes,
    name_bounds: Int64s,
    value_starts: npt.NDArray[np.int64],
    value_sizes: npt.NDArray[np.int64],
) -> None:
    """Find the values of *p* different names in the property strings of *n* records.

    ``starts``, ``sizes`` int64[n]: the property strings. Name k is
    ``names[name_bounds[k]:name_bounds[k + 1]]``. The spans are written to ``value_starts`` and
    ``value_sizes`` int64[p, n]; the size is -1 where a record has no such property.
    """
    bounds = name_bounds.tolist()
    wanted = {names[a:b].tobytes(): k for k, (a, b) in enumerate(pairwise(bounds))}
    value_starts[:] = 0
    value_sizes[:] = -1
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        for name_start, split, end in _pairs(segment, start, start + size):
            k = wanted.get(segment[name_start:split].tobytes())
            if k is not None:
                value_starts[k, i], value_sizes[k, i] = split + 1, end - split - 1


@device
def _same(left, left_start, right, right_start, size):
    done = 0
    while done + 8 <= size:
        if load_native_u64(left, left_start + done) != load_native_u64(right, right_start + done):
            return False
        done += 8
    while done < size:
        if left[left_start + done] != right[right_start + done]:
            return False
        done += 1
    return True


@device
def _separators(buffer, start, end):
    """Return bit i for a separator at start + i, of up to 64 bytes before *end*."""
    if start + _BLOCK_BYTES <= len(buffer):
        mask = separator_mask(buffer, start)
        if end - start < _BLOCK_BYTES:
            mask &= (np.uint64(1) << np.uint64(end - start)) - np.uint64(1)
        return mask
    mask = np.uint64(0)
    for i in range(min(end - start, _BLOCK_BYTES)):
        if buffer[start + i] in (_NAME_END, _PAIR_END):
            mask |= np.uint64(1) << np.uint64(i)
    return mask


@device
def _note_value(segment, pair, split, end, i, names, name_bounds, value_starts, value_sizes):
    if split <= pair or end - 1 <= split:
        return
    for k in range(len(name_bounds) - 1):
        size = name_bounds[k + 1] - name_bounds[k]
        if size == split - pair and _same(segment, pair, names, name_bounds[k], size):
            value_starts[k, i] = split + 1
            value_sizes[k, i] = end - split - 1


@device
def find_in_string(segment, start, size, i, names, name_bounds, value_starts, value_sizes):
    """Find the named values of one property string, which becomes column *i*."""
    for k in range(len(name_bounds) - 1):
        value_starts[k, i] = 0
        value_sizes[k, i] = -1
    pair = block = start
    end = start + size
    split = np.int64(-1)
    while block < end:
        mask = _separators(segment, block, end)
        while mask != 0:
            at = block + count_trailing_zeros(mask)
            mask &= mask - np.uint64(1)
            if segment[at] == _PAIR_END:
                _note_value(
                    segment, pair, split, at, i, names, name_bounds, value_starts, value_sizes
                )
                pair = at + 1
                split = np.int64(-1)
            elif split < 0:
                split = at
        block += _BLOCK_BYTES
    _note_value(segment, pair, split, end, i, names, name_bounds, value_starts, value_sizes)


@kernel(
    find_properties_plain,
    NOTHING,
    (IN_BYTES, IN_INT64S, IN_INT64S, IN_BYTES, IN_INT64S, OUT_INT64_ROWS, OUT_INT64_ROWS),
)
def find_properties(segment, starts, sizes, names, name_bounds, value_starts, value_sizes):
    assert len(starts) == len(sizes) == value_starts.shape[1] == value_sizes.shape[1]
    assert len(name_bounds) - 1 == value_starts.shape[0] == value_sizes.shape[0]
    assert name_bounds[-1] <= len(names)
    for i in range(len(starts)):
        assert 0 <= starts[i] <= starts[i] + sizes[i] <= len(segment)
        find_in_string(
            segment, starts[i], sizes[i], i, names, name_bounds, value_starts, value_sizes
        )


def match_values_plain(
    segment: Bytes, starts: Int64s, sizes: Int64s, wanted: Bytes, wanted_bounds: Int64s, out: Bools
) -> None:
    """Write for each span whether it is exactly one of the wanted values; False if absent.

    ``starts``, ``sizes`` int64[n], ``out`` bool[n]; value k is
    ``wanted[wanted_bounds[k]:wanted_bounds[k + 1]]``.
    """
    bounds = wanted_bounds.tolist()
    values = {wanted[a:b].tobytes() for a, b in pairwise(bounds)}
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        out[i] = size >= 0 and segment[start : start + size].tobytes() in values


@kernel(
    match_values_plain,
    NOTHING,
    (IN_BYTES, IN_INT64S, IN_INT64S, IN_BYTES, IN_INT64S, OUT_BOOLS),
)
def match_values(segment, starts, sizes, wanted, wanted_bounds, out):
    assert len(starts) == len(sizes) == len(out)
    assert wanted_bounds[-1] <= len(wanted)
    for i in range(len(starts)):
        out[i] = False
        if sizes[i] < 0:
            continue
        assert 0 <= starts[i] <= len(segment) - sizes[i]
        for k in range(len(wanted_bounds) - 1):
            size = wanted_bounds[k + 1] - wanted_bounds[k]
            if size == sizes[i] and _same(segment, starts[i], wanted, wanted_bounds[k], size):
                out[i] = True


def list_pairs_plain(
    segment: Bytes,
    starts: Int64s,
    sizes: Int64s,
    pair_bounds: Int32s,
    pairs: npt.NDArray[np.int64],
) -> int:
    """List the properties of *n* records, without duplicates: a name keeps its first place.

    Writes to ``pair_bounds`` int32[n + 1] the range of each record's pairs, and to ``pairs``
    int64[4, m] name start, name size, value start and value size of each. Returns the number of
    pairs, or -1 when there are more than m.
    """
    count = 0
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        pair_bounds[i] = count
        found: dict[bytes, tuple[int, int, int, int]] = {}
        for name_start, split, end in _pairs(segment, start, start + size):
            name = segment[name_start:split].tobytes()
            first_start = found[name][0] if name in found else name_start
            found[name] = (first_start, split - name_start, split + 1, end - split - 1)
        if count + len(found) > pairs.shape[1]:
            return -1
        for pair in found.values():
            pairs[:, count] = pair
            count += 1
    pair_bounds[len(starts)] = count
    return count


@device
def _note_pair(segment, pair, split, end, first, count, pairs):
    """Record a pair; return the number of pairs after it, or -1 when there is no room."""
    size = split - pair
    if size <= 0 or end - 1 <= split:
        return count
    place = count
    for k in range(first, count):
        if pairs[1, k] == size and _same(segment, pairs[0, k], segment, pair, size):
            place = k
    if place == count:
        if count == pairs.shape[1]:
            return -1
        pairs[0, count] = pair
        pairs[1, count] = size
        count += 1
    pairs[2, place] = split + 1
    pairs[3, place] = end - split - 1
    return count


@kernel(list_pairs_plain, INT, (IN_BYTES, IN_INT64S, IN_INT64S, OUT_INT32S, OUT_INT64_ROWS))
def list_pairs(segment, starts, sizes, pair_bounds, pairs):
    assert len(starts) == len(sizes) == len(pair_bounds) - 1
    assert pairs.shape[0] == 4
    count = 0
    for i in range(len(starts)):
        first = count
        pair_bounds[i] = first
        pair = block = starts[i]
        end = pair + sizes[i]
        assert 0 <= pair <= end <= len(segment)
        split = np.int64(-1)
        while block < end:
            mask = _separators(segment, block, end)
            while mask != 0:
                at = block + count_trailing_zeros(mask)
                mask &= mask - np.uint64(1)
                if segment[at] == _PAIR_END:
                    count = _note_pair(segment, pair, split, at, first, count, pairs)
                    if count < 0:
                        return -1
                    pair = at + 1
                    split = np.int64(-1)
                elif split < 0:
                    split = at
            block += _BLOCK_BYTES
        count = _note_pair(segment, pair, split, end, first, count, pairs)
        if count < 0:
            return -1
    pair_bounds[len(starts)] = count
    return count


def _pairs(segment: Bytes, start: int, end: int) -> list[tuple[int, int, int]]:
    """Return name start, position of the first 0x01 and end of each pair that counts."""
    text = segment[start:end].tobytes()
    found = []
    at = 0
    for pair in text.split(b"\x02"):
        split = pair.find(b"\x01")
        if 0 < split < len(pair) - 1:
            found.append((start + at, start + at + split, start + at + len(pair)))
        at += len(pair) + 1
    return found
