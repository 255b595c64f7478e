"""The kernels of ``rocketray/kernels/property_crc.py`` in plain Python."""

from __future__ import annotations

import re
import zlib

from rocketray.kernels._compile import Bools, Bytes, Int64s
from rocketray.kernels.property_crc import CRC_PROPERTY_NAME


def crc_of(record: bytes) -> bytes:
    """Return the CRC property that a record should have."""
    crc = zlib.crc32(record[:-20]) & 0x7FFFFFFF
    return CRC_PROPERTY_NAME + b"\x01" + f"{crc:010}"[::-1].encode() + b"\x02"


def has_crc(record: bytes, property_size: int) -> bool:
    """Return whether a record has a CRC property, right or wrong."""
    begins = property_size == 20 or (property_size > 20 and record[-21:-20] == b"\x02")
    return begins and record[-20:-12] == CRC_PROPERTY_NAME


def is_damaged(record: bytes, property_size: int) -> bool:
    """Return whether it does not match its CRC property, or the one of which the name is lost."""
    if property_size > 0 and record[-1] == 0:
        return True
    if has_crc(record, property_size):
        return record[-20:] != crc_of(record)
    if property_size < 20 or not re.fullmatch(rb"\x01[0-9]{10}\x02", record[-12:]):
        return False
    whole = record if property_size == 20 else record[:-21] + b"\x02" + record[-20:]
    return record[-12:] == crc_of(whole)[-12:]


def check_property_crcs(
    data: Bytes, ends: Int64s, sizes: Int64s, property_sizes: Int64s, damaged: Bools
) -> int:
    columns = ends.tolist(), sizes.tolist(), property_sizes.tolist()
    for i, (end, size, property_size) in enumerate(zip(*columns, strict=True)):
        record = data[end - size : end].tobytes()
        damaged[i] = is_damaged(record, property_size)
    return int(damaged.sum())
