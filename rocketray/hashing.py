"""The hashes that RocketMQ writes into its files: index keys, tags codes, CRC-32.

``String.hashCode`` runs over UTF-16 code units, so a character outside the basic plane counts
as two, and a lone surrogate is hashed like any other unit. ``kernels/hashing.py`` has the same for
many texts: a change here needs the same change there. Source: RocketMQ 5.3.3,
``MessageExtBrokerInner.tagsString2tagsCode``, ``IndexFile.indexKeyHashMethod``, ``UtilAll.crc32``.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache

__all__ = ["crc32", "index_key_hash", "java_hash_code", "signed_32", "tags_code"]

_MASK_32 = 0xFFFFFFFF
_SIGN_32 = 0x80000000
_INT_MIN = -(2**31)


def java_hash_code(text: str) -> int:
    """Return Java's ``String.hashCode()``: a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & _MASK_32
    return signed_32(value)


def signed_32(value: int) -> int:
    """Return the low 32 bits of *value* as Java's ``int``."""
    return ((value + _SIGN_32) & _MASK_32) - _SIGN_32


# A topic has few tags; where each message has another one, the cache ends at some MB.
@lru_cache(maxsize=65536)
def tags_code(tags: str | None) -> int:
    """Return the tags code of a ConsumeQueue entry: 0 without a tag, else the string's hash."""
    return java_hash_code(tags) if tags else 0


def index_key_hash(key: str) -> int:
    """Return the key hash of an IndexFile entry: ``abs(hashCode)``; 0 where ``abs`` overflows."""
    value = java_hash_code(key)
    return 0 if value == _INT_MIN else abs(value)


def crc32(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32 of *data* with the sign bit cleared, as in BODYCRC."""
    return zlib.crc32(data) & 0x7FFFFFFF
