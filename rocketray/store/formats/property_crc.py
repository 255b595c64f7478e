"""A CRC over the whole record, as its last property: it also covers the fields without a checksum.

- Off by default, as RocketMQ's ``enabledAppendPropCRC``.
- A producer leaves room for it; the store fills it in when it appends, because it covers the
  offsets and the store time.
- A record with the property is checked when it is read, and in the search for the end of a log.
- A record without it is valid, also in a store that writes it, as in RocketMQ without
  ``forceVerifyPropCRC``. So damage to its name, or to the separator before it, hides it.

The CRC is CRC-32 without its top bit over all of the record except the property itself, as ten
digits, the lowest first. Source: RocketMQ 5.3.3, ``CommitLog``, ``MessageDecoder``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocketray.errors import MessageTooLargeError
from rocketray.hashing import crc32
from rocketray.kernels.hashing import crc32_spans
from rocketray.kernels.property_crc import (
    CRC_PROPERTY_BYTES,
    CRC_PROPERTY_NAME,
    may_hold_crc_property,
    read_property_crcs,
)
from rocketray.message import PROPERTIES_MAX_BYTES

__all__ = [
    "CRC_NAME",
    "CRC_NO_DIGITS",
    "CRC_PROPERTY_BYTES",
    "crc_property",
    "fill_crcs",
    "find_crc_mismatches",
    "rows_with_crc",
    "with_crc_property",
]

CRC_NAME = np.frombuffer(CRC_PROPERTY_NAME + b"\x01", np.uint8)
CRC_NO_DIGITS = np.frombuffer(b"0" * 10, np.uint8)
_EMPTY = CRC_NAME.tobytes() + CRC_NO_DIGITS.tobytes() + b"\x02"
_SEPARATOR = b"\x02"
_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


def with_crc_property(properties: bytes) -> bytes:
    """Return a property string with room for the CRC at its end.

    A missing last separator is added first. Raises :class:`MessageTooLargeError`.
    """
    ended = properties if not properties or properties.endswith(_SEPARATOR) else properties + b"\2"
    size = len(ended) + CRC_PROPERTY_BYTES
    if size > PROPERTIES_MAX_BYTES:
        raise MessageTooLargeError("a property string with its CRC", size, PROPERTIES_MAX_BYTES)
    return ended + _EMPTY


def crc_property(record: bytes | memoryview) -> bytes:
    """Return the property for the end of *record*, which has room for it there."""
    crc = crc32(record[:-CRC_PROPERTY_BYTES])
    return CRC_NAME.tobytes() + f"{crc}"[::-1].ljust(10, "0").encode() + _SEPARATOR


def find_crc_mismatches(data: _Bytes, starts: _Int64s, sizes: _Int64s) -> npt.NDArray[np.bool_]:
    """Return which of the records at *starts* with *sizes* have a wrong CRC property."""
    told = np.empty(len(starts), np.int64)
    if read_property_crcs(data, starts, sizes, told) == 0:
        return np.zeros(len(starts), np.bool_)
    has_one = told != -1
    actual = np.empty(len(starts), np.int32)
    crc32_spans(data, starts, np.where(has_one, sizes - CRC_PROPERTY_BYTES, 0), actual)
    mismatches: npt.NDArray[np.bool_] = has_one & (told != actual)
    return mismatches


def rows_with_crc(records: _Bytes, sizes: npt.NDArray[np.int32]) -> list[int]:
    """Return the numbers of the back-to-back records that end with a CRC property."""
    if int(sizes.sum(dtype=np.int64)) != len(records) or (sizes <= 0).any():
        return []  # not a valid batch; appending it will raise
    if not may_hold_crc_property(records, sizes):
        return []
    lengths = sizes.astype(np.int64)
    told = np.empty(len(lengths), np.int64)
    read_property_crcs(records, np.cumsum(lengths) - lengths, lengths, told)
    found: list[int] = np.flatnonzero(told != -1).tolist()
    return found


def fill_crcs(records: _Bytes, sizes: npt.NDArray[np.int32], rows: list[int]) -> None:
    """Fill in the CRCs of the records *rows*; all records are complete otherwise."""
    ends = np.cumsum(sizes, dtype=np.int64)
    for row in rows:
        end = int(ends[row])
        record = records[end - int(sizes[row]) : end]
        record[-CRC_PROPERTY_BYTES:] = np.frombuffer(crc_property(record.data), np.uint8)
