"""Spans in a mapped segment to Arrow arrays, without a Python object per value.

Every array is a copy: none keeps the segment mapped. A span with a size below 0 becomes null.
Text that is not UTF-8, which no writer produces, is decoded with U+FFFD for each invalid part, as
in Java; Arrow would refuse the whole array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.base.property_string import decode_text
from rocketray.errors import ConfigError
from rocketray.kernels.properties import find_properties, join_names, list_pairs, match_values
from rocketray.kernels.spans import gather_spans, is_ascii, sum_sizes

ARROW_BYTES_MAX = 2**31 - 1  # offsets of binary and string are int32
_PAIR_MIN_BYTES = 4  # name, 0x01, value, 0x02; a string may lack its last 0x02

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


def fixed_array(kind: Any, values: npt.NDArray[Any]) -> Any:
    """Return *values*, of the width of the Arrow type *kind*, as an array without nulls."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def joined_array(pieces: list[Any], kind: Any) -> Any:
    """Return arrays of the Arrow type *kind* as one."""
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_arrays(pieces) if pieces else pa.array([], kind)


def binary_array(segment: Bytes, starts: Int64s, sizes: Int64s) -> Any:
    """Return the spans as ``binary``, null where the size is below 0."""
    return pa.Array.from_buffers(pa.binary(), len(starts), _gathered(segment, starts, sizes))


def string_array(segment: Bytes, starts: Int64s, sizes: Int64s) -> Any:
    """Return the spans as ``string``, null where the size is below 0."""
    buffers = _gathered(segment, starts, sizes)
    data = np.frombuffer(buffers[2], np.uint8)
    if is_ascii(data, len(data)):
        return pa.Array.from_buffers(pa.string(), len(starts), buffers)
    raw = pa.Array.from_buffers(pa.binary(), len(starts), buffers)
    try:
        return raw.cast(pa.string())  # checks that it is UTF-8
    except pa.ArrowInvalid:
        texts = [value and decode_text(value) for value in raw.to_pylist()]
        return pa.array(texts, pa.string())


def properties_array(segment: Bytes, starts: Int64s, sizes: Int64s) -> Any:
    """Return property strings as ``map<string, string>``, each name once, with its last value."""
    bounds = np.empty(len(starts) + 1, np.int32)
    # A string of s bytes has at most (s + 1) / 4 pairs. Unused memory is never touched.
    room = int(((sizes + 1) // _PAIR_MIN_BYTES).sum())
    pairs = np.empty((4, room), np.int64)
    count = list_pairs(segment, starts, sizes, bounds, pairs)
    assert count >= 0
    names = string_array(segment, pairs[0, :count], pairs[1, :count])
    values = string_array(segment, pairs[2, :count], pairs[3, :count])
    return pa.MapArray.from_arrays(fixed_array(pa.int32(), bounds), names, values)


def find_values(
    segment: Bytes, starts: Int64s, sizes: Int64s, names: Sequence[str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return starts and sizes, each int64[names, records], of named values in property strings."""
    joined, bounds = join_names(tuple(names))
    value_starts = np.empty((len(names), len(starts)), np.int64)
    value_sizes = np.empty_like(value_starts)
    find_properties(segment, starts, sizes, joined, bounds, value_starts, value_sizes)
    return value_starts, value_sizes


def match_exactly(
    segment: Bytes, starts: Int64s, sizes: Int64s, wanted: Sequence[str]
) -> npt.NDArray[np.bool_]:
    """Return which of the spans equal one of the *wanted* texts; absent ones do not."""
    joined, bounds = join_names(tuple(wanted))
    matches = np.empty(len(starts), np.bool_)
    match_values(segment, starts, sizes, joined, bounds, matches)
    return matches


def _gathered(segment: Bytes, starts: Int64s, sizes: Int64s) -> list[Any]:
    """Return validity, offsets and data of a copy of the spans."""
    total, absent = sum_sizes(sizes)
    if total > ARROW_BYTES_MAX:
        raise ConfigError(
            f"{len(starts)} values have {total} bytes, and an Arrow column can hold at most "
            f"{ARROW_BYTES_MAX}; read fewer messages at a time"
        )
    offsets = np.empty(len(starts) + 1, np.int32)
    data = np.empty(total, np.uint8)
    gather_spans(segment, starts, sizes, offsets, data)
    validity = pa.py_buffer(np.packbits(sizes >= 0, bitorder="little")) if absent else None
    return [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
