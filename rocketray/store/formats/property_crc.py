"""A CRC over the whole record, as its last property: it also covers the fields without a checksum.

- Every record gets one that leaves room for it at the end of its properties, as each producer and
  each node does; the store fills it in when it appends, because it covers the offsets and the
  store time. In RocketMQ it is off by default (``enabledAppendPropCRC``).
- A record with the property is checked when it is read, and in the search for the end of a log.
- A record without it is valid, as in RocketMQ without ``forceVerifyPropCRC``: one that a broker
  wrote, or whose properties leave no room. Damage that reaches from its name into its digits hides
  it.
- Readers of properties never see it (:func:`rocketray.base.property_string.decode_properties`).

The CRC is CRC-32 without its top bit over all of the record except the property itself, as ten
digits, the lowest first. Source: RocketMQ 5.3.3, ``CommitLog``, ``MessageDecoder``.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from rocketray.hashing import crc32
from rocketray.kernels.property_crc import (
    CRC_PROPERTY_BYTES,
    CRC_PROPERTY_NAME,
    check_property_crcs,
)
from rocketray.message import PROPERTIES_MAX_BYTES

_NAME = CRC_PROPERTY_NAME + b"\x01"
_SEPARATOR = b"\x02"
_SEPARATOR_PLACE = -CRC_PROPERTY_BYTES - 1  # of the separator that ends the property before
_ANY_CRC = re.compile(rb".{8}\x01[0-9]{10}\x02", re.DOTALL)
CRC_NAME = np.frombuffer(_NAME, np.uint8)
CRC_NO_DIGITS = np.frombuffer(b"0" * 10, np.uint8)
CRC_ROOM = _NAME + CRC_NO_DIGITS.tobytes() + _SEPARATOR
"""The property without its digits, which the store fills in."""
_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]


def with_crc_property(properties: bytes) -> bytes:
    """Return a property string with room for the CRC at its end; unchanged if that is too long.

    A missing last separator is added first.
    """
    ended = properties if not properties or properties.endswith(_SEPARATOR) else properties + b"\2"
    if len(ended) + CRC_PROPERTY_BYTES > PROPERTIES_MAX_BYTES:
        return properties
    return ended + CRC_ROOM


def has_crc_property(properties: bytes) -> bool:
    """Return whether a property string ends with the property, right or wrong."""
    own, before = properties[-CRC_PROPERTY_BYTES:], properties[:-CRC_PROPERTY_BYTES]
    is_whole = len(own) == CRC_PROPERTY_BYTES and own.startswith(CRC_PROPERTY_NAME)
    return is_whole and (not before or before.endswith(_SEPARATOR))


def crc_property(record: bytes | memoryview) -> bytes:
    """Return the property for the end of *record*, which has room for it there."""
    crc = crc32(record[:-CRC_PROPERTY_BYTES])
    return _NAME + f"{crc}"[::-1].ljust(10, "0").encode() + _SEPARATOR


def matches_crc_property(record: bytes | memoryview, properties_start: int) -> bool:
    """Return whether *record* matches its CRC property, if it has one.

    It has one also if just the name, or the separator before it, is not as it was: then the number
    is that of the record. A property string that ends with zero was never written whole.
    """
    properties = bytes(record[properties_start:])
    own, before = properties[-CRC_PROPERTY_BYTES:], properties[:-CRC_PROPERTY_BYTES]
    if len(own) < CRC_PROPERTY_BYTES or own.endswith(b"\0"):
        return not own.endswith(b"\0")
    if has_crc_property(properties):
        return own == crc_property(record)
    begins = not before or before.endswith(_SEPARATOR)
    if not _ANY_CRC.fullmatch(own):
        return True
    whole = record if begins else b"".join((record[:_SEPARATOR_PLACE], _SEPARATOR, own))
    # Such digits are the CRC of the rest by chance once in 2**31: they are the property's.
    return own[len(CRC_PROPERTY_NAME) :] != crc_property(whole)[len(CRC_PROPERTY_NAME) :]


def find_crc_mismatches(
    data: _Bytes, sizes: _Int64s, property_starts: _Int64s, property_sizes: _Int64s
) -> npt.NDArray[np.bool_]:
    """Return which records, given by *sizes* and the property strings at their ends, are damaged.

    Those that do not match their CRC property: bool[n].
    """
    damaged = np.empty(len(sizes), np.bool_)
    check_property_crcs(data, property_starts + property_sizes, sizes, property_sizes, damaged)
    return damaged
