"""The kernels of ``rocketray/kernels/property_crc.py`` in plain Python."""

from __future__ import annotations

import numpy as np

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.property_crc import CRC_PROPERTY_BYTES, CRC_PROPERTY_NAME

__all__ = ["may_hold_crc_property", "read_property_crcs"]

_NONE, _BAD = -1, -2


def may_hold_crc_property(records: Bytes, sizes: Int32s) -> bool:
    ends = np.cumsum(sizes, dtype=np.int64)
    ends = ends[sizes >= CRC_PROPERTY_BYTES].tolist()
    return any(records[end - 20 : end - 12].tobytes() == CRC_PROPERTY_NAME for end in ends)


def read_property_crcs(data: Bytes, starts: Int64s, sizes: Int64s, out: Int64s) -> int:
    count = 0
    for i, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        record = data[start : start + size].tobytes()
        name, end, digits, last = (record[-20:-12], record[-12:-11], record[-11:-1], record[-1:])
        begins = record[-21:-20] == b"\x02" or record[-22:-20] == b"\x00\x14"
        begins &= size >= CRC_PROPERTY_BYTES + 2
        out[i] = _NONE
        if begins and name == CRC_PROPERTY_NAME:
            is_good = (end, last) == (b"\x01", b"\x02") and digits.isdigit()
            out[i] = int(digits[::-1]) if is_good else _BAD
            count += 1
    return count
