"""Property strings of many records: find values by name, compare them, list all pairs.

The rules are RocketMQ's: a pair ends at 0x02 or at the end of the string, its first 0x01 divides
name from value, a pair with an empty name or value does not count, the last duplicate wins.
Separators are found 64 bytes at a time. Source: ``MessageDecoder.string2messageProperties``.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ._compile import (
    Bytes,
    InBytes,
    InInt64s,
    Int64s,
    OutBools,
    OutInt32s,
    OutInt64Rows,
    OutInt64s,
    device,
    kernel,
)
from .intrinsics import count_trailing_zeros, load_native_u64, separator_mask
from .property_crc import CRC_NAME_BYTES, CRC_NAME_WORD, crc_place

_NAME_END, _PAIR_END = 1, 2
_BLOCK_BYTES = 64  # what separator_mask looks at


@lru_cache(maxsize=1024)  # the names of filters and columns, of which a process has few
def join_names(names: tuple[str, ...]) -> tuple[Bytes, Int64s]:
    """Return the texts back to back in UTF-8, and their bounds: uint8[total] and int64[n + 1]."""
    # A name with a lone surrogate equals none that is stored; an error would say less than that.
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    bounds = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(name) for name in encoded], out=bounds[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), bounds


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
        # Within the buffer, but maybe beyond the string: the bits behind its end are cleared.
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
            # Overwrites an earlier pair of that name: the last one counts.
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


@kernel
def find_properties(
    segment: InBytes,
    starts: InInt64s,
    sizes: InInt64s,
    names: InBytes,
    name_bounds: InInt64s,
    value_starts: OutInt64Rows,
    value_sizes: OutInt64Rows,
) -> None:
    """Find the values of *p* different names in the property strings of *n* records.

    ``starts``, ``sizes`` int64[n]: the property strings. Name k is
    ``names[name_bounds[k]:name_bounds[k + 1]]``. The spans are written to ``value_starts`` and
    ``value_sizes`` int64[p, n]; the size is -1 where a record has no such property.
    """
    assert len(starts) == len(sizes) == value_starts.shape[1] == value_sizes.shape[1]
    assert len(name_bounds) - 1 == value_starts.shape[0] == value_sizes.shape[0]
    assert name_bounds[-1] <= len(names)
    for i in range(len(starts)):
        assert 0 <= starts[i] <= starts[i] + sizes[i] <= len(segment)
        find_in_string(
            segment, starts[i], sizes[i], i, names, name_bounds, value_starts, value_sizes
        )


@kernel
def match_values(
    segment: InBytes,
    starts: InInt64s,
    sizes: InInt64s,
    wanted: InBytes,
    wanted_bounds: InInt64s,
    out: OutBools,
) -> None:
    """Write for each span whether it is exactly one of the wanted values; False if absent.

    ``starts``, ``sizes`` int64[n], ``out`` bool[n]; value k is
    ``wanted[wanted_bounds[k]:wanted_bounds[k + 1]]``.
    """
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


@device
def _note_pair(segment, pair, split, end, first, count, pairs):
    """Record a pair; return the number of pairs after it, or -1 when there is no room."""
    size = split - pair
    if size <= 0 or end - 1 <= split:
        return count
    if (
        size == CRC_NAME_BYTES and load_native_u64(segment, pair) == CRC_NAME_WORD
    ):  # the store's own
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


@kernel
def list_pairs(
    segment: InBytes, starts: InInt64s, sizes: InInt64s, pair_bounds: OutInt32s, pairs: OutInt64Rows
) -> int:
    """List the properties of *n* records, without duplicates: a name keeps its first place.

    The CRC property is not listed.

    Writes to ``pair_bounds`` int32[n + 1] the range of each record's pairs, and to ``pairs``
    int64[4, m] name start, name size, value start and value size of each. Returns the number of
    pairs, or -1 when there are more than m.
    """
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


@device
def _end_of_pairs(segment, start, end):
    """Return *end* if the string has whole pairs only, and none is the CRC property; else -1."""
    pair = block = start
    expected = _NAME_END
    while block < end:
        mask = _separators(segment, block, end)
        while mask != 0:
            at = block + count_trailing_zeros(mask)
            mask &= mask - np.uint64(1)
            size = at - pair
            if size == 0 or segment[at] != expected:
                return -1
            if (
                expected == _NAME_END
                and size == CRC_NAME_BYTES
                and load_native_u64(segment, pair) == CRC_NAME_WORD
            ):
                return -1
            expected = _NAME_END + _PAIR_END - expected
            pair = at + 1
        block += _BLOCK_BYTES
    return end if pair == end and expected == _NAME_END else -1


@kernel
def end_pairs(segment: InBytes, starts: InInt64s, sizes: InInt64s, ends: OutInt64s) -> None:
    """Write where the pairs of *n* property strings end, before the CRC property; int64[n].

    -1 where a pair lacks its name, its value or a separator, or an earlier one has the name of the
    CRC property. ``starts``, ``sizes`` int64[n].
    """
    assert len(starts) == len(sizes) == len(ends)
    for i in range(len(starts)):
        end = starts[i] + sizes[i]
        assert 0 <= starts[i] <= end <= len(segment)
        crc = crc_place(segment, end, sizes[i])
        ends[i] = _end_of_pairs(segment, starts[i], crc if crc >= 0 else end)
