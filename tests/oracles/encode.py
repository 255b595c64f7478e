"""The kernels of ``rocketray/kernels/encode.py`` in plain Python."""

from __future__ import annotations

import numpy as np

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.layout import BODY_CRC


def write_records(
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


def write_property(
    out: Bytes, cursors: Int64s, name: Bytes, values: Bytes, starts: Int64s, sizes: Int64s
) -> None:
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        if size >= 0:
            value = values[start : start + size].tobytes()
            _write(out, cursors, i, name.tobytes() + value + b"\x02")


def write_pairs(
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
    for i in range(len(cursors)):
        for k in range(int(pair_bounds[i]), int(pair_bounds[i + 1])):
            name = names[name_starts[k] : name_starts[k] + name_sizes[k]].tobytes()
            value = values[value_starts[k] : value_starts[k] + value_sizes[k]].tobytes()
            _write(out, cursors, i, name + b"\x01" + value + b"\x02")


def _write(out: Bytes, cursors: Int64s, i: int, pair: bytes) -> None:
    at = int(cursors[i])
    out[at : at + len(pair)] = np.frombuffer(pair, np.uint8)
    cursors[i] = at + len(pair)
