"""The kernels of ``rocketray/kernels/properties.py`` in plain Python."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rocketray.kernels._compile import Bools, Bytes, Int32s, Int64s
from rocketray.kernels.property_crc import CRC_PROPERTY_BYTES, CRC_PROPERTY_NAME


def find_properties(
    segment: Bytes,
    starts: Int64s,
    sizes: Int64s,
    names: Bytes,
    name_bounds: Int64s,
    value_starts: npt.NDArray[np.int64],
    value_sizes: npt.NDArray[np.int64],
) -> None:
    bounds = name_bounds.tolist()
    wanted = {names[a:b].tobytes(): k for k, (a, b) in enumerate(pairwise(bounds))}
    value_starts[:] = 0
    value_sizes[:] = -1
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        for name_start, split, end in _pairs(segment, start, start + size):
            k = wanted.get(segment[name_start:split].tobytes())
            if k is not None:
                value_starts[k, i], value_sizes[k, i] = split + 1, end - split - 1


def match_values(
    segment: Bytes, starts: Int64s, sizes: Int64s, wanted: Bytes, wanted_bounds: Int64s, out: Bools
) -> None:
    bounds = wanted_bounds.tolist()
    values = {wanted[a:b].tobytes() for a, b in pairwise(bounds)}
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        out[i] = size >= 0 and segment[start : start + size].tobytes() in values


def list_pairs(
    segment: Bytes,
    starts: Int64s,
    sizes: Int64s,
    pair_bounds: Int32s,
    pairs: npt.NDArray[np.int64],
) -> int:
    count = 0
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        pair_bounds[i] = count
        found: dict[bytes, tuple[int, int, int, int]] = {}
        for name_start, split, end in _pairs(segment, start, start + size):
            name = segment[name_start:split].tobytes()
            if name == CRC_PROPERTY_NAME:
                continue
            first_start = found[name][0] if name in found else name_start
            found[name] = (first_start, split - name_start, split + 1, end - split - 1)
        if count + len(found) > pairs.shape[1]:
            return -1
        for pair in found.values():
            pairs[:, count] = pair
            count += 1
    pair_bounds[len(starts)] = count
    return count


def end_pairs(segment: Bytes, starts: Int64s, sizes: Int64s, ends: Int64s) -> None:
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        text = segment[start : start + size].tobytes()
        own, before = text[-CRC_PROPERTY_BYTES:], text[:-CRC_PROPERTY_BYTES]
        has_crc = len(own) == CRC_PROPERTY_BYTES and own.startswith(CRC_PROPERTY_NAME)
        if has_crc and (not before or before.endswith(b"\2")):
            text = before
        *pairs, rest = text.split(b"\2")
        is_whole = not rest and all(_is_whole(pair.split(b"\1")) for pair in pairs)
        ends[i] = start + len(text) if is_whole else -1


def _is_whole(parts: list[bytes]) -> bool:
    return len(parts) == 2 and all(parts) and parts[0] != CRC_PROPERTY_NAME


def _pairs(segment: Bytes, start: int, end: int) -> list[tuple[int, int, int]]:
    """Return name start, position of the first 0x01 and end of each pair that counts."""
    text = segment[start:end].tobytes()
    found = []
    at = 0
    for pair in text.split(b"\x02"):
        split = pair.find(b"\x01")
        if 0 < split < len(pair) - 1:
            found.append((start + at, start + at + split, start + at + len(pair)))
        at += len(pair) + 1
    return found
