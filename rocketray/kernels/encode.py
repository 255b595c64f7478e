"""Encoding of columns to records: headers, bodies and topics first, then one property at a time.

``cursors`` int64[n] holds the position in *out* of the next property of each record. A producer
knows the size of every record before the first byte is written, so ``write_records`` sets the
cursors to the start of the properties, and after the last column each is at the end of its record.

Columns are spans of a buffer (see ``spans.py``); a size below 0 is a null, which writes nothing.
"""

from __future__ import annotations

import numpy as np

from ._compile import (
    IN_BYTES,
    IN_INT32S,
    IN_INT64S,
    NOTHING,
    OUT_BYTES,
    OUT_INT64S,
    Bytes,
    Int32s,
    Int64s,
    kernel,
)
from .intrinsics import copy, store_i16, store_i32
from .layout import BODY_CRC
from .spans import copy_span

__all__ = [
    "write_pairs",
    "write_pairs_plain",
    "write_property",
    "write_property_plain",
    "write_records",
    "write_records_plain",
]

_NAME_END, _PAIR_END = 1, 2


def write_records_plain(
    out: Bytes,
    positions: Int64s,
    header: Bytes,
    bodies: Bytes,
    body_starts: Int64s,
    body_sizes: Int64s,
    body_crcs: Int32s,
    topic_field: Bytes,
    property_sizes: Int64s,
    cursors: Int64s,
) -> None:
    """Write n records without their properties; record i is ``out[positions[i]:positions[i + 1]]``.

    ``header`` is everything before the body, whose size, CRC and body length are filled in;
    ``topic_field`` the topic behind its length. No body is null.
    """
    for i in range(len(body_sizes)):
        start, end = int(positions[i]), int(positions[i + 1])
        first, size = int(body_starts[i]), int(body_sizes[i])
        fields = bytearray(header.tobytes())
        fields[:4] = (end - start).to_bytes(4, "big")
        fields[BODY_CRC : BODY_CRC + 4] = int(body_crcs[i]).to_bytes(4, "big")
        fields[-4:] = size.to_bytes(4, "big")
        properties_length = int(property_sizes[i]).to_bytes(2, "big")
        body = bodies[first : first + size].tobytes()
        written = b"".join((fields, body, topic_field.tobytes(), properties_length))
        assert start + len(written) + int(property_sizes[i]) == end
        out[start : start + len(written)] = np.frombuffer(written, np.uint8)
        cursors[i] = start + len(written)


@kernel(
    write_records_plain,
    NOTHING,
    (
        OUT_BYTES,
        IN_INT64S,
        IN_BYTES,
        IN_BYTES,
        IN_INT64S,
        IN_INT64S,
        IN_INT32S,
        IN_BYTES,
        IN_INT64S,
        OUT_INT64S,
    ),
)
def write_records(
    out,
    positions,
    header,
    bodies,
    body_starts,
    body_sizes,
    body_crcs,
    topic_field,
    property_sizes,
    cursors,
):
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
        store_i32(out, at - 4, size)
        copy_span(out, at, bodies, body_starts[i], size)
        at += size
        copy(out, at, topic_field, 0, len(topic_field))
        at += len(topic_field)
        store_i16(out, at, property_sizes[i])
        cursors[i] = at + 2


def write_property_plain(
    out: Bytes, cursors: Int64s, name: Bytes, values: Bytes, starts: Int64s, sizes: Int64s
) -> None:
    """Write one property of n records and advance their cursors; ``name`` ends with its 0x01."""
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        if size >= 0:
            value = values[start : start + size].tobytes()
            _write(out, cursors, i, name.tobytes() + value + b"\x02")


@kernel(
    write_property_plain,
    NOTHING,
    (OUT_BYTES, OUT_INT64S, IN_BYTES, IN_BYTES, IN_INT64S, IN_INT64S),
)
def write_property(out, cursors, name, values, starts, sizes):
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


def write_pairs_plain(
    out: Bytes,
    cursors: Int64s,
    pair_bounds: Int64s,
    names: Bytes,
    name_starts: Int64s,
    name_sizes: Int64s,
    values: Bytes,
    value_starts: Int64s,
    value_sizes: Int64s,
) -> None:
    """Write to record i the pairs ``pair_bounds[i]`` to ``pair_bounds[i + 1]``; none is null."""
    for i in range(len(cursors)):
        for k in range(int(pair_bounds[i]), int(pair_bounds[i + 1])):
            name = names[name_starts[k] : name_starts[k] + name_sizes[k]].tobytes()
            value = values[value_starts[k] : value_starts[k] + value_sizes[k]].tobytes()
            _write(out, cursors, i, name + b"\x01" + value + b"\x02")


@kernel(
    write_pairs_plain,
    NOTHING,
    (
        OUT_BYTES,
        OUT_INT64S,
        IN_INT64S,
        IN_BYTES,
        IN_INT64S,
        IN_INT64S,
        IN_BYTES,
        IN_INT64S,
        IN_INT64S,
    ),
)
def write_pairs(
    out,
    cursors,
    pair_bounds,
    names,
    name_starts,
    name_sizes,
    values,
    value_starts,
    value_sizes,
):
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


def _write(out: Bytes, cursors: Int64s, i: int, pair: bytes) -> None:
    at = int(cursors[i])
    out[at : at + len(pair)] = np.frombuffer(pair, np.uint8)
    cursors[i] = at + len(pair)
