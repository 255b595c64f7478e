"""The kernel of ``rocketray/kernels/record_conditions.py`` in plain Python."""

from __future__ import annotations

import numpy as np
from oracles.conditions import run_program
from oracles.record_properties import find_record_properties

from rocketray.kernels._compile import Bytes, Doubles, Int32s, Int64s

__all__ = ["judge_records"]


def judge_records(
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
    value_starts = np.empty((len(name_bounds) - 1, len(sizes)), np.int64)
    value_sizes = np.empty_like(value_starts)
    found, may_hold_crc = find_record_properties(
        *(segment, segment_start, physical_offsets, sizes, queue_offsets, queue_id, 0),
        *(names, name_bounds, value_starts, value_sizes),
    )
    if found < len(sizes) or may_hold_crc:
        return False
    values = segment, value_starts, value_sizes
    return not run_program(*values, program, doubles, texts, bounds, patterns, states)
