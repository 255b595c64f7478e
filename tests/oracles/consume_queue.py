"""The kernels of ``rocketray/kernels/consume_queue.py`` in plain Python."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.consume_queue import UNIT_BYTES
from rocketray.kernels.layout import ENTRY_BYTES, TAGS_CODE_EXT_MAX

_ENTRY = np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
_ADDRESS_BASE = -(1 << 63)
_UNIT = np.dtype([("size", ">i2"), ("code", ">i8"), ("time", ">i8"), ("bitmap_bytes", ">i2")])


def match_tags(raw: Bytes, first: int, count: int, codes: Int32s, out: Int64s) -> int:
    assert first >= 0 and count >= 0 and (first + count) * ENTRY_BYTES <= len(raw)  # noqa: PT018 - one bound
    assert count <= len(out)
    found = _entries(raw, first, count)["code"].astype(np.int64)
    hits = np.isin(found.astype(np.int32), codes) | (found <= TAGS_CODE_EXT_MAX)
    numbers = np.flatnonzero(hits)
    out[: len(numbers)] = numbers + first
    return len(numbers)


def read_entries(
    raw: Bytes,
    first: int,
    count: int,
    queue_offset: int,
    physical_offsets: Int64s,
    sizes: Int32s,
    tags_codes: Int64s,
    queue_offsets: Int64s,
    at: int,
) -> int:
    assert first >= 0 and count >= 0 and (first + count) * ENTRY_BYTES <= len(raw)  # noqa: PT018 - one bound
    assert 0 <= at <= len(physical_offsets) - count
    entries = _entries(raw, first, count)
    physical_offsets[at : at + count] = entries["offset"]
    sizes[at : at + count] = entries["size"]
    tags_codes[at : at + count] = entries["code"]
    queue_offsets[at : at + count] = np.arange(queue_offset, queue_offset + count)
    return int(np.count_nonzero(entries["code"] <= TAGS_CODE_EXT_MAX))


def pick_entries(
    raw: Bytes,
    numbers: Int64s,
    count: int,
    queue_offset: int,
    physical_offsets: Int64s,
    sizes: Int32s,
    tags_codes: Int64s,
    queue_offsets: Int64s,
) -> int:
    assert count <= min(len(numbers), len(physical_offsets))
    entries = _entries(raw, 0, len(raw) // ENTRY_BYTES)[numbers[:count]]
    physical_offsets[:count] = entries["offset"]
    sizes[:count] = entries["size"]
    tags_codes[:count] = entries["code"]
    queue_offsets[:count] = numbers[:count] + queue_offset
    return int(np.count_nonzero(entries["code"] <= TAGS_CODE_EXT_MAX))


def _entries(raw: Bytes, first: int, count: int) -> npt.NDArray[np.void]:
    return raw[first * ENTRY_BYTES : (first + count) * ENTRY_BYTES].view(_ENTRY)


def match_bits(
    raw: Bytes,
    first: int,
    count: int,
    units: Bytes,
    units_start: int,
    segment_bytes: int,
    bits: Int64s,
    bitmap_bytes: int,
    after_ms: int,
    out: Int64s,
    hits: int,
) -> tuple[int, int]:
    assert first >= 0 and count >= 0 and (first + count) * ENTRY_BYTES <= len(raw)  # noqa: PT018 - one bound
    assert 0 <= hits <= len(out)
    assert all(0 <= bit < 8 * bitmap_bytes for bit in bits.tolist())
    entries = raw[first * ENTRY_BYTES : (first + count) * ENTRY_BYTES].view(_ENTRY)
    fields = entries["code"].astype(np.int64)
    is_address = fields <= TAGS_CODE_EXT_MAX
    positions = np.where(is_address, (fields ^ np.int64(_ADDRESS_BASE)) - units_start, 0)
    elsewhere = np.flatnonzero(is_address & ((positions < 0) | (positions >= segment_bytes)))
    stop = int(elsewhere[0]) if len(elsewhere) else count
    passes = np.ones(stop, np.bool_)
    size = UNIT_BYTES + bitmap_bytes
    rows = np.flatnonzero(is_address[:stop] & (positions[:stop] + size <= len(units)))
    if len(rows):
        whole = units[positions[rows][:, None] + np.arange(size)]
        heads = np.ascontiguousarray(whole[:, :UNIT_BYTES]).view(_UNIT)[:, 0]
        known = (heads["size"] == size) & (heads["bitmap_bytes"] == bitmap_bytes)
        known &= heads["time"] > after_ms
        bitmaps = whole[:, UNIT_BYTES:]
        is_set = np.ones(len(rows), np.bool_)
        for bit in bits.tolist():
            is_set &= (bitmaps[:, bit >> 3] >> (bit & 7) & 1) == 1
        passes[rows[known & ~is_set]] = False
    numbers = np.flatnonzero(passes)
    room = len(out) - hits
    if len(numbers) >= room:
        numbers = numbers[:room]
        stop = int(numbers[-1]) + 1 if room else 0
    out[hits : hits + len(numbers)] = numbers + first
    return hits + len(numbers), first + stop


def read_codes(fields: Int64s, at: int, units: Bytes, units_start: int, segment_bytes: int) -> int:
    assert 0 <= at <= len(fields)
    for row in range(at, len(fields)):
        field = int(fields[row])
        if field > TAGS_CODE_EXT_MAX:
            continue
        position = field - _ADDRESS_BASE - units_start
        if not 0 <= position < segment_bytes:
            return row
        if position + UNIT_BYTES > len(units):
            continue
        size, code, _, bitmap_bytes = units[position : position + UNIT_BYTES].view(_UNIT)[0].item()
        if bitmap_bytes >= 0 and size == UNIT_BYTES + bitmap_bytes:
            fields[row] = code
    return len(fields)
