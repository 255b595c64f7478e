"""Arrow columns of texts and bytes as spans of one buffer, without a copy of the values.

A null is a span of size -1. Sliced arrays, dictionaries and the large types are supported; views
are cast first. The spans keep the Arrow buffer alive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.base.property_string import decode_text
from rocketray.errors import ConfigError
from rocketray.store.formats.compression import Compression

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spans:
    """``data`` uint8, ``starts`` int64[n], ``sizes`` int64[n], -1 for a null."""

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sizes)

    def arrays(self) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
        """Return the three in the kernels' order."""
        return self.data, self.starts, self.sizes

    def text(self, row: int) -> str:
        """Return one value; the row must not be null."""
        start = int(self.starts[row])
        raw = self.data[start : start + int(self.sizes[row])].tobytes()
        return decode_text(raw)

    @classmethod
    def nulls(cls, count: int) -> Spans:
        """Return *count* nulls: spans of size -1, of no data."""
        zeros = np.zeros(count, np.int64)
        return cls(np.empty(0, np.uint8), zeros, np.full(count, -1, np.int64))


def bytes_column(name: str, array: Any) -> Spans:
    """Return a column of ``binary`` or ``string`` of any width, or a dictionary of these."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _dictionary_spans(name, array)
    if pa.types.is_null(kind):
        return Spans.nulls(len(array))
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        array = array.cast(pa.large_binary())
    elif pa.types.is_string_view(kind):
        array = array.cast(pa.large_string())
    if not _is_text(array.type) and not _is_bytes(array.type):
        raise ConfigError(f"column {name!r} is {kind}; give binary or string")
    return _spans(array)


def text_column(name: str, array: Any) -> Spans:
    """Return a column of ``string`` of any width, or a dictionary of it."""
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not (_is_text(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind)):
        raise ConfigError(f"column {name!r} is {array.type}; give string")
    return bytes_column(name, array)


def property_column(name: str, array: Any) -> Spans:
    """Return a column of text, whole numbers or truth values, as the text of properties."""
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        array = array.cast(pa.string())
    try:
        return text_column(name, array)
    except ConfigError:
        raise ConfigError(
            f"property column {name!r} is {array.type}; properties are strings, so cast it to the "
            "string that its readers should see (integers and booleans need no cast)"
        ) from None


def compressed_column(spans: Spans, compression: Compression) -> tuple[Spans, Int64s]:
    """Return bodies in stored form, and int64[m] the rows of the compressed ones."""
    starts, sizes = spans.starts.copy(), spans.sizes.copy()
    # Compressed bodies go behind the data, so the others stay where they are.
    parts, end, rows = [spans.data], len(spans.data), []
    for row in np.flatnonzero(sizes >= compression.over_bytes).tolist():
        start = int(starts[row])
        body = spans.data[start : start + int(sizes[row])].tobytes()
        stored = compression.compress(body)
        if stored is not body:
            parts.append(np.frombuffer(stored, np.uint8))
            starts[row], sizes[row] = end, len(stored)
            end += len(stored)
            rows.append(row)
    data = np.concatenate(parts) if rows else spans.data
    return Spans(data, starts, sizes), np.array(rows, np.int64)


def list_of_keys(array: Any) -> tuple[Spans, npt.NDArray[np.int64]]:
    """Return a ``list<string>`` column: the spans of all keys, and int64[keys] the row of each."""
    from pyarrow.compute import list_parent_indices  # noqa: PLC0415 - its import takes 0.1 s

    if len(array) == 0:
        return Spans.nulls(0), np.empty(0, np.int64)
    rows = list_parent_indices(array).to_numpy().astype(np.int64)
    return text_column("keys", array.flatten()), rows


def pairs_column(array: Any) -> tuple[Spans, Spans, npt.NDArray[np.int64]]:
    """Return a ``map<string, string>`` column: names, values, and the rows' bounds int64[n + 1].

    A null row has no pairs.
    """
    if not pa.types.is_map(array.type):
        raise ConfigError(f"column 'properties' is {array.type}; give map<string, string>")
    bounds = np.zeros(len(array) + 1, np.int64)
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    array = array.filter(pa.array(valid))  # also undoes slices: the pairs then have no gaps
    offsets = array.offsets.to_numpy().astype(np.int64)
    counts = np.zeros(len(valid), np.int64)
    counts[valid] = np.diff(offsets)
    np.cumsum(counts, out=bounds[1:])
    first, count = (int(offsets[0]), int(offsets[-1] - offsets[0])) if len(offsets) else (0, 0)
    names = text_column("properties", array.keys.slice(first, count))
    values = text_column("properties", array.items.slice(first, count))
    return names, values, bounds


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _spans(array: Any) -> Spans:
    count = len(array)
    validity, offsets, data = array.buffers()
    if count == 0 or offsets is None:
        return Spans.nulls(count)
    is_large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    width: Any = np.int64 if is_large else np.int32
    bounds = np.frombuffer(offsets, width, count + 1, array.offset * np.dtype(width).itemsize)
    starts = bounds[:-1].astype(np.int64)
    sizes = bounds[1:] - starts
    if validity is not None and array.null_count:
        sizes[array.is_null().to_numpy(zero_copy_only=False)] = -1
    raw = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return Spans(raw, starts, sizes)


def _dictionary_spans(name: str, array: Any) -> Spans:
    values = bytes_column(name, array.dictionary)
    if len(values) == 0:
        return Spans.nulls(len(array))
    indices = array.indices
    # Any number will do for a null: its size says below that it is one.
    numbers = indices.fill_null(0) if indices.null_count else indices
    rows = numbers.to_numpy(zero_copy_only=False)
    starts, sizes = values.starts[rows], values.sizes[rows]
    if indices.null_count:
        sizes[indices.is_null().to_numpy(zero_copy_only=False)] = -1
    return Spans(values.data, starts, sizes)
