"""Encoding of columns to records: headers, bodies and topics first, then one property at a time.

``cursors`` int64[n] holds the position in *out* of the next property of each record. A producer
knows the size of every record before the first byte is written, so ``write_records`` sets the
cursors to the start of the properties, and after the last column each is at the end of its record.

Columns are spans of a buffer (see ``spans.py``); a size below 0 is a null, which writes nothing.
"""

from __future__ import annotations

from ._compile import InBytes, InInt32s, InInt64s, OutBytes, OutInt64s, kernel
from .intrinsics import copy, store_i16, store_i32
from .layout import BODY_CRC
from .spans import copy_span

_NAME_END, _PAIR_END = 1, 2


@kernel
def write_records(
    out: OutBytes,
    positions: InInt64s,
    header: InBytes,
    bodies: InBytes,
    body_starts: InInt64s,
    body_sizes: InInt64s,
    body_crcs: InInt32s,
    topic_field: InBytes,
    property_sizes: InInt64s,
    cursors: OutInt64s,
) -> None:
    """Write n records without their properties; record i is ``out[positions[i]:positions[i + 1]]``.

    ``header`` is everything before the body, whose size, CRC and body length are filled in;
    ``topic_field`` the topic behind its length. No body is null.
    """
    n = len(body_sizes)
    assert len(positions) - 1 == n == len(body_starts) == len(body_crcs)
    assert n == len(property_sizes) == len(cursors)
    fixed = len(header) + len(topic_field) + 2
    for i in range(n):
        start = positions[i]
        size = body_sizes[i]
        assert size >= 0
        assert property_sizes[i] >= 0
        assert positions[i + 1] == start + fixed + size + property_sizes[i]
        assert 0 <= start < positions[i + 1] <= len(out)
        assert 0 <= body_starts[i] <= len(bodies) - size
        copy(out, start, header, 0, len(header))
        store_i32(out, start, positions[i + 1] - start)
        store_i32(out, start + BODY_CRC, body_crcs[i])
        at = start + len(header)
        # The header ends with the length of the body.
        store_i32(out, at - 4, size)
        copy_span(out, at, bodies, body_starts[i], size)
        at += size
        copy(out, at, topic_field, 0, len(topic_field))
        at += len(topic_field)
        store_i16(out, at, property_sizes[i])
        cursors[i] = at + 2


@kernel
def write_property(
    out: OutBytes,
    cursors: OutInt64s,
    name: InBytes,
    values: InBytes,
    starts: InInt64s,
    sizes: InInt64s,
) -> None:
    """Write one property of n records and advance their cursors; ``name`` ends with its 0x01."""
    assert len(cursors) == len(starts) == len(sizes)
    for i in range(len(cursors)):
        size = sizes[i]
        if size < 0:
            continue
        at = cursors[i]
        assert 0 <= starts[i] <= len(values) - size
        assert 0 <= at <= len(out) - len(name) - size - 1
        copy(out, at, name, 0, len(name))
        at += len(name)
        copy_span(out, at, values, starts[i], size)
        out[at + size] = _PAIR_END
        cursors[i] = at + size + 1


@kernel
def write_pairs(
    out: OutBytes,
    cursors: OutInt64s,
    pair_bounds: InInt64s,
    names: InBytes,
    name_starts: InInt64s,
    name_sizes: InInt64s,
    values: InBytes,
    value_starts: InInt64s,
    value_sizes: InInt64s,
) -> None:
    """Write to record i the pairs ``pair_bounds[i]`` to ``pair_bounds[i + 1]``; none is null."""
    assert len(pair_bounds) - 1 == len(cursors)
    assert len(name_starts) == len(name_sizes) == len(value_starts) == len(value_sizes)
    for i in range(len(cursors)):
        assert 0 <= pair_bounds[i] <= pair_bounds[i + 1] <= len(name_starts)
        at = cursors[i]
        for k in range(pair_bounds[i], pair_bounds[i + 1]):
            assert 0 <= name_starts[k] <= len(names) - name_sizes[k]
            assert 0 <= value_starts[k] <= len(values) - value_sizes[k]
            assert 0 <= at <= len(out) - name_sizes[k] - value_sizes[k] - 2
            copy_span(out, at, names, name_starts[k], name_sizes[k])
            at += name_sizes[k]
            out[at] = _NAME_END
            copy_span(out, at + 1, values, value_starts[k], value_sizes[k])
            at += 1 + value_sizes[k]
            out[at] = _PAIR_END
            at += 1
        cursors[i] = at
