"""Queue entries directly to properties, verdicts or bodies: records are checked in the same pass.

A pull of 32 messages takes a few microseconds, and each call between Python and a kernel one or
two of them. So each kernel does in one step the work of several of ``spans.py``, ``properties.py``,
``conditions.py`` and ``hashing.py``, for blocks in which nothing is unusual. The rest is only
reported, and left to slower code: damaged records, a record in another segment, compressed bodies,
and values that are ODD.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._compile import (
    Bytes,
    Doubles,
    InBytes,
    InDoubles,
    InInt32s,
    InInt64Rows,
    InInt64s,
    Int64s,
    OutBytes,
    OutInt32s,
    OutInt64Rows,
    OutInt64s,
    device,
    kernel,
)
from .conditions import run_program
from .hashing import crc32_spans
from .intrinsics import load_i32, load_i64
from .layout import BODY_CRC, PHYSICAL_OFFSET, QUEUE_ID, QUEUE_OFFSET, SYS_FLAG, SYS_FLAG_COMPRESSED
from .measure import measure_record
from .properties import find_in_string
from .property_crc import crc_matches
from .spans import copy_span


@device
def _is_of_entry(segment, position, size, physical_offset, queue_offset, queue_id):
    """Return whether the record measured at *position* is the one that a queue entry points to."""
    return (
        size >= 0
        and load_i64(segment, position + PHYSICAL_OFFSET) == physical_offset
        and load_i64(segment, position + QUEUE_OFFSET) == queue_offset
        and load_i32(segment, position + QUEUE_ID) == queue_id
    )


@kernel
def find_record_properties(
    segment: InBytes,
    segment_start: int,
    physical_offsets: InInt64s,
    sizes: InInt32s,
    queue_offsets: InInt64s,
    queue_id: int,
    first: int,
    names: InBytes,
    name_bounds: InInt64s,
    value_starts: OutInt64Rows,
    value_sizes: OutInt64Rows,
) -> int:
    """Do as ``find_properties``, for the records that entries point to, from number *first* on.

    Returns the number of the first entry without a whole record within the segment, whose first
    byte has the offset *segment_start*, of just this size, physical offset, queue id and queue
    offset, that matches its CRC property if it has one; or the number of entries.
    """
    assert len(physical_offsets) == len(sizes) == len(queue_offsets)
    assert value_starts.shape[1] == value_sizes.shape[1] == len(sizes)
    assert len(name_bounds) - 1 == value_starts.shape[0] == value_sizes.shape[0]
    assert name_bounds[-1] <= len(names)
    assert first >= 0
    for i in range(first, len(sizes)):
        position = physical_offsets[i] - segment_start
        measure = measure_record(segment, position, len(segment))
        if measure.size != sizes[i] or not _is_of_entry(
            segment, position, measure.size, physical_offsets[i], queue_offsets[i], queue_id
        ):
            return i
        if not crc_matches(segment, position, measure.size, measure.properties_size):
            return i
        start, size = measure.properties_start, measure.properties_size
        find_in_string(segment, start, size, i, names, name_bounds, value_starts, value_sizes)
    return len(sizes)


@kernel
def find_property_strings(
    records: InBytes, sizes: InInt32s, property_starts: OutInt64s, property_sizes: OutInt64s
) -> int:
    """Find the property string of each of *n* records that lie back to back in *records*: int64[n].

    Returns -1, or the number of the first record that is not whole or not of its size.
    """
    assert len(sizes) == len(property_starts) == len(property_sizes)
    position = 0
    for i in range(len(sizes)):
        measure = measure_record(records, position, len(records))
        if measure.size < 0 or measure.size != sizes[i]:
            return i
        property_starts[i] = measure.properties_start
        property_sizes[i] = measure.properties_size
        position += measure.size
    return -1


class Conditions(NamedTuple):
    """A program, as ``run_program`` takes it, and its properties' names, as ``join_names`` does."""

    names: Bytes
    name_bounds: Int64s
    program: Int64s
    doubles: Doubles
    texts: Bytes
    bounds: Int64s
    patterns: Int64s


@kernel
def judge_records(
    segment: InBytes,
    segment_start: int,
    physical_offsets: InInt64s,
    sizes: InInt32s,
    queue_offsets: InInt64s,
    queue_id: int,
    names: InBytes,
    name_bounds: InInt64s,
    program: InInt64Rows,
    doubles: InDoubles,
    texts: InBytes,
    bounds: InInt64s,
    patterns: InInt64s,
    states: OutBytes,
) -> bool:
    """Write the state of each of the *n* records that queue entries point to; uint8[n].

    As ``find_record_properties`` followed by ``run_program``. Returns whether nothing was unusual;
    otherwise the content of *states* is undefined.
    """
    assert len(states) == len(sizes)
    value_starts = np.empty((len(name_bounds) - 1, len(sizes)), np.int64)
    value_sizes = np.empty((len(name_bounds) - 1, len(sizes)), np.int64)
    whole = find_record_properties(
        segment,
        segment_start,
        physical_offsets,
        sizes,
        queue_offsets,
        queue_id,
        0,
        names,
        name_bounds,
        value_starts,
        value_sizes,
    )
    if whole < len(sizes):
        return False
    odd = run_program(
        segment, value_starts, value_sizes, program, doubles, texts, bounds, patterns, states
    )
    return odd == 0


@kernel
def copy_bodies(
    segment: InBytes,
    segment_start: int,
    physical_offsets: InInt64s,
    sizes: InInt32s,
    queue_offsets: InInt64s,
    queue_id: int,
    bounds: OutInt32s,
    data: OutBytes,
) -> bool:
    """Copy the bodies of the records that n queue entries point to, back to back, to ``data``.

    ``bounds`` int32[n + 1] become those of the bodies; ``data`` uint8 has room for the records.
    Returns False, and leaves both undefined, unless each is a whole record within the segment,
    whose first byte has the offset *segment_start*, of just this size, physical offset, queue id
    and queue offset, with a body that is not compressed and matches its CRC, and matches its CRC
    property if it has one.
    """
    n = len(sizes)
    assert len(physical_offsets) == n == len(queue_offsets) == len(bounds) - 1
    starts, body_sizes = np.empty(n, np.int64), np.empty(n, np.int64)
    crcs, found_crcs = np.empty(n, np.int32), np.empty(n, np.int32)
    total = 0
    for i in range(n):
        position = physical_offsets[i] - segment_start
        measure = measure_record(segment, position, len(segment))
        if measure.size != sizes[i] or not _is_of_entry(
            segment, position, measure.size, physical_offsets[i], queue_offsets[i], queue_id
        ):
            return False
        if load_i32(segment, position + SYS_FLAG) & SYS_FLAG_COMPRESSED != 0:
            return False
        if not crc_matches(segment, position, measure.size, measure.properties_size):
            return False
        starts[i], body_sizes[i] = measure.body_start, measure.body_size
        crcs[i] = load_i32(segment, position + BODY_CRC)
        total += measure.body_size
    assert total <= len(data)
    crc32_spans(segment, starts, body_sizes, found_crcs)
    at = 0
    for i in range(n):
        size = body_sizes[i]
        if size > 0 and found_crcs[i] != crcs[i]:
            return False
        bounds[i] = at
        copy_span(data, at, segment, starts[i], size)
        at += size
    bounds[n] = at
    return True
