"""RocketMQ's Bloom filter, bit for bit, inside a ``pybloom_live.BloomFilter``.

A bitmap in ConsumeQueueExt tells which consumers' expressions a message matches: bit *j* is mask
``1 << (j % 8)`` of byte ``j // 8``. A text sets k bits of one array of m bits, where pybloom-live
sets one bit in each of k slices. So the positions, and all that depends on them, are ours; the
bit array and the set operations are pybloom-live's. Source: RocketMQ 5.3.3, ``BloomFilter``.

The broker asks for 20 % error and 32 consumers: k = 3, m = 112. The text of a consumer is
``"group#topic"``.
"""

from __future__ import annotations

import math
from copy import copy as shallow_copy
from functools import lru_cache
from typing import Any, NamedTuple

import pybloom_live
from bitarray import bitarray

from rocketray.base.quantity import counted
from rocketray.errors import ConfigError
from rocketray.hashing import signed_32

_MASK_32 = 0xFFFFFFFF
_MASK_64 = 0xFFFFFFFFFFFFFFFF
_BLOCK_BYTES = 16  # of murmur3 x64 128, whose constants follow and stand in its rounds
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_BITS_MAX = 2**31 - 1  # RocketMQ counts bits in an int


class BloomParameters(NamedTuple):
    """The number of bits that a text sets (k), and of all bits (m, a multiple of 8)."""

    k: int
    m: int


@lru_cache(maxsize=1024)  # a node uses one pair; tests and tools ask for many
def bloom_parameters(f: int, n: int) -> BloomParameters:
    """Return the size for *f* percent of false positives, 1 to 99, among *n* texts.

    Quotients of natural logarithms in doubles, as ``BloomFilter.createByFn`` computes them.
    """
    if not 1 <= f <= 99 or n < 1:
        raise ConfigError(
            f"invalid Bloom filter: {f} percent error (1 to 99 are allowed) and "
            f"{counted(n, 'string')}"
        )
    error = f / 100.0
    k = math.ceil(math.log(error) / math.log(0.5))
    m = math.ceil(n * (math.log(1 / error) / math.log(2)) * (math.log(math.e) / math.log(2)))
    m = 8 * math.ceil(m / 8)
    if m > _BITS_MAX:
        raise ConfigError(f"a Bloom filter for {n} strings needs more than {_BITS_MAX} bits")
    return BloomParameters(k, m)


class RocketBloomFilter(pybloom_live.BloomFilter):  # type: ignore[misc] # pybloom_live has no types
    """A set of texts with RocketMQ's bits; has ``add``, ``in``, ``copy``, ``|``, ``&``, pickling.

    - It never refuses a text. One text too many means more false positives; a missing text would
      mean undelivered messages.
    - :meth:`to_bytes` is RocketMQ's bitmap; pybloom-live's own files mean other bits.
    """

    bitarray: bitarray

    def __init__(self, f: int = 20, n: int = 32) -> None:
        self.parameters = bloom_parameters(f, n)
        self.error_rate, self.capacity, self.count = f / 100.0, n, 0
        self.num_slices, self.num_bits = self.parameters
        self.bits_per_slice = 0  # the positions count from the first bit, in all of the k "slices"
        self.bitarray = bitarray(self.num_bits, endian="little")
        self.bitarray.setall(0)

    @classmethod
    def from_bytes(cls, data: bytes, f: int = 20, n: int = 32) -> RocketBloomFilter:
        """Return the filter whose bitmap is *data*; raise ConfigError for another size."""
        new = cls(f, n)
        if 8 * len(data) != new.parameters.m:
            raise ConfigError(
                f"a bitmap of {8 * len(data)} bits does not belong to a filter of "
                f"{new.parameters.m} bits; read it with the error and count that it was written "
                "with"
            )
        # Bit j is 1 << (j % 8) of its byte, as in RocketMQ's BitsArray.
        new.bitarray = bitarray(endian="little")
        new.bitarray.frombytes(data)
        return new

    def to_bytes(self) -> bytes:
        """Return RocketMQ's bitmap, ``m / 8`` bytes."""
        return self.bitarray.tobytes()

    def make_hashes(self, key: str) -> list[int]:
        """Return the k bits that *key* sets; they may repeat."""
        low, high = _murmur3_low_64(
            key.encode("utf-8", "replace")
        )  # a lone surrogate is '?' in Java
        positions = []
        for i in range(1, self.parameters.k + 1):
            combined = signed_32(low + i * high)
            # As RocketMQ flips a negative number: abs would give another bit.
            positions.append((~combined if combined < 0 else combined) % self.parameters.m)
        return positions

    def add(self, key: str, skip_check: bool = False) -> bool:  # noqa: FBT001, FBT002 - pybloom's
        """Set the bits of *key*; return True when all were set before, unless *skip_check*."""
        if not skip_check and key in self:
            return True
        for position in self.make_hashes(key):
            self.bitarray[position] = 1
        self.count += 1
        return False

    def copy(self) -> RocketBloomFilter:
        """Return an independent filter with the same bits."""
        new = shallow_copy(self)
        new.bitarray = self.bitarray.copy()
        return new

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def bit_positions(s: str, f: int, n: int) -> list[int]:
    """Return the bits that *s* sets in a filter of :func:`bloom_parameters`; they may repeat."""
    return RocketBloomFilter(f, n).make_hashes(s)


def _murmur3_low_64(data: bytes) -> tuple[int, int]:
    """Return the first 8 bytes of murmur3 x64 128, seed 0, as two little-endian 32-bit halves."""
    h1 = h2 = 0
    whole = len(data) - len(data) % _BLOCK_BYTES
    for start in range(0, whole, _BLOCK_BYTES):
        k1, k2 = _halves(data[start : start + _BLOCK_BYTES])
        h1 = (_rotated(h1 ^ _mixed_1(k1), 27) + h2) * 5 + 0x52DCE729 & _MASK_64
        h2 = (_rotated(h2 ^ _mixed_2(k2), 31) + h1) * 5 + 0x38495AB5 & _MASK_64
    k1, k2 = _halves(data[whole:].ljust(_BLOCK_BYTES, b"\0"))
    h1 ^= _mixed_1(k1) ^ len(data)
    h2 ^= _mixed_2(k2) ^ len(data)
    h1 = h1 + h2 & _MASK_64
    h2 = h2 + h1 & _MASK_64
    low_64 = _finished(h1) + _finished(h2) & _MASK_64
    return low_64 & _MASK_32, low_64 >> 32


def _halves(block: bytes) -> tuple[int, int]:
    return int.from_bytes(block[:8], "little"), int.from_bytes(block[8:], "little")


def _mixed_1(k1: int) -> int:
    return _rotated(k1 * _C1 & _MASK_64, 31) * _C2 & _MASK_64


def _mixed_2(k2: int) -> int:
    return _rotated(k2 * _C2 & _MASK_64, 33) * _C1 & _MASK_64


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK_64


def _finished(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return h ^ h >> 33
