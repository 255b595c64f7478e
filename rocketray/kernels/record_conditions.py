"""Queue entries directly to verdicts, in one call: for blocks in which nothing is unusual.

A pull of 32 messages takes a few microseconds, and each call between Python and a kernel one or
two of them. Unusual blocks are left to slower code: the records lie in two segments, one of them is
missing or may have a CRC of its own, or a value is ODD and needs a reader other than a kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._compile import (
    BOOL,
    IN_BYTES,
    IN_DOUBLES,
    IN_INT32S,
    IN_INT64_ROWS,
    IN_INT64S,
    INT,
    OUT_BYTES,
    Bytes,
    Doubles,
    Int32s,
    Int64s,
    kernel,
)
from .conditions import run_program, run_program_plain
from .record_properties import find_record_properties, find_record_properties_plain

__all__ = ["Conditions", "judge_records", "judge_records_plain"]


class Conditions(NamedTuple):
    """A program, as ``run_program`` takes it, and its properties' names, as ``join_names`` does."""

    names: Bytes
    name_bounds: Int64s
    program: Int64s
    doubles: Doubles
    texts: Bytes
    bounds: Int64s
    patterns: Int64s


def judge_records_plain(
    segment: Bytes,
    segment_start: int,
    physical_offsets: Int64s,
    sizes: Int32s,
    queue_offsets: Int64s,
    queue_id: int,
    names: Bytes,
    name_bounds: Int64s,
    program: Int64s,
    doubles: Doubles,
    texts: Bytes,
    bounds: Int64s,
    patterns: Int64s,
    states: Bytes,
) -> bool:
    """Write the state of each of the *n* records that queue entries point to; uint8[n].

    As ``find_record_properties`` followed by ``run_program``. Returns whether nothing was unusual;
    otherwise the content of *states* is undefined.
    """
    value_starts = np.empty((len(name_bounds) - 1, len(sizes)), np.int64)
    value_sizes = np.empty_like(value_starts)
    found, may_hold_crc = find_record_properties_plain(
        *(segment, segment_start, physical_offsets, sizes, queue_offsets, queue_id, 0),
        *(names, name_bounds, value_starts, value_sizes),
    )
    if found < len(sizes) or may_hold_crc:
        return False
    values = segment, value_starts, value_sizes
    return not run_program_plain(*values, program, doubles, texts, bounds, patterns, states)


@kernel(
    judge_records_plain,
    BOOL,
    (
        *(IN_BYTES, INT, IN_INT64S, IN_INT32S, IN_INT64S, INT),
        *(IN_BYTES, IN_INT64S, IN_INT64_ROWS, IN_DOUBLES, IN_BYTES, IN_INT64S, IN_INT64S),
        OUT_BYTES,
    ),
)
def judge_records(
    segment,
    segment_start,
    physical_offsets,
    sizes,
    queue_offsets,
    queue_id,
    names,
    name_bounds,
    program,
    doubles,
    texts,
    bounds,
    patterns,
    states,
):
    assert len(states) == len(sizes)
    value_starts = np.empty((len(name_bounds) - 1, len(sizes)), np.int64)
    value_sizes = np.empty((len(name_bounds) - 1, len(sizes)), np.int64)
    found, may_hold_crc = find_record_properties(
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
    if found < len(sizes) or may_hold_crc:
        return False
    odd = run_program(
        segment, value_starts, value_sizes, program, doubles, texts, bounds, patterns, states
    )
    return odd == 0
