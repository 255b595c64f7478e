"""Queue entries directly to verdicts, in one call: for blocks in which nothing is unusual.

A pull of 32 messages takes a few microseconds, and each call between Python and a kernel one or
two of them. Unusual blocks are left to slower code: the records lie in two segments, one of them is
missing or may have a CRC of its own, or a value is ODD and needs a reader other than a kernel.
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
    kernel,
)
from .conditions import run_program
from .record_properties import find_record_properties

__all__ = ["Conditions", "judge_records"]


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
