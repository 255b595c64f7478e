"""The kernels of ``rocketray/kernels/spans.py`` in plain Python."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from oracles.measure import measure_record

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.layout import (
    BODY_CRC,
    BORN_TIMESTAMP,
    FLAG,
    PHYSICAL_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    SYS_FLAG,
    SYS_FLAG_STORE_IPV6,
)

__all__ = [
    "end_of_segment",
    "gather_spans",
    "is_ascii",
    "measure_spans",
    "sum_sizes",
    "write_offset_ids",
]


def measure_spans(
    segment: Bytes,
    positions: Int64s,
    physical_offsets: Int64s,
    sizes: Int32s,
    fields: npt.NDArray[np.int64],
) -> int:
    places = zip(positions.tolist(), physical_offsets.tolist(), sizes.tolist(), strict=True)
    for i, (position, offset, size) in enumerate(places):
        found = measure_record(segment, position, len(segment))
        if (
            found.size < 0
            or found.size != size
            or _number(segment, position + PHYSICAL_OFFSET, 8) != offset
        ):
            return i
        sys_flag = _number(segment, position + SYS_FLAG, 4)
        fields[:, i] = (
            found.body_start,
            found.body_size,
            found.properties_start,
            found.properties_size,
            found.topic_start,
            found.topic_size,
            _number(segment, position + BORN_TIMESTAMP, 8),
            _number(segment, found.store_host - 8, 8),
            found.store_host,
            20 if sys_flag & SYS_FLAG_STORE_IPV6 else 8,
            _number(segment, position + FLAG, 4),
            sys_flag,
            _number(segment, position + BODY_CRC, 4),
            _number(segment, position + QUEUE_ID, 4),
            _number(segment, position + QUEUE_OFFSET, 8),
        )
    return -1


def end_of_segment(physical_offsets: Int64s, segment_bytes: int, first: int) -> int:
    starts = physical_offsets[first:] // segment_bytes
    others = np.flatnonzero(starts != starts[0])
    return first + int(others[0]) if len(others) else len(physical_offsets)


def sum_sizes(sizes: Int64s) -> tuple[int, int]:
    return int(np.maximum(sizes, 0).sum()), int((sizes < 0).sum())


def is_ascii(data: Bytes, size: int) -> bool:
    return bool((data[:size] < 0x80).all())


def gather_spans(source: Bytes, starts: Int64s, sizes: Int64s, offsets: Int32s, data: Bytes) -> int:
    lengths = np.maximum(sizes, 0)
    offsets[0] = 0
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    assert total <= len(data)
    # Byte k of the result, in span i, is the byte k - offsets[i] of that span.
    shift = np.repeat(starts - offsets[:-1], lengths)
    data[:total] = source[shift + np.arange(total)]
    return total


def write_offset_ids(
    segment: Bytes,
    host_starts: Int64s,
    host_sizes: Int64s,
    physical_offsets: Int64s,
    offsets: Int32s,
    data: Bytes,
) -> int:
    at = 0
    for i, offset in enumerate(physical_offsets.tolist()):
        offsets[i] = at
        start = int(host_starts[i])
        host = bytes(segment[start : start + int(host_sizes[i])])
        text = (host + offset.to_bytes(8, "big")).hex().upper().encode()
        data[at : at + len(text)] = np.frombuffer(text, np.uint8)
        at += len(text)
    offsets[len(physical_offsets)] = at
    return at


def _number(buffer: Bytes, position: int, width: int) -> int:
    return int.from_bytes(buffer[position : position + width].tobytes(), "big", signed=True)
