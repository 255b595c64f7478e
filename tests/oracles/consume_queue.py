"""The kernels of ``rocketray/kernels/consume_queue.py`` in plain Python."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.layout import ENTRY_BYTES, TAGS_CODE_EXT_MAX

__all__ = ["match_tags", "pick_entries", "read_entries"]

_ENTRY = np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")])


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
