"""The two kinds of message ids, both upper-case hex of 32 characters, or 56 with an IPv6 address.

- An *offset id* is the place of a record: address of the store, i32 port, i64 physical offset.
- A *unique id* is created by the producer: its address, 16 bits of its process id, 32 bits for the
  generator within the process, 32 bits of milliseconds since the month began, a 16-bit counter.

The two cannot be told apart by their form. Source: RocketMQ 5.3.3, ``MessageDecoder``,
``MessageClientIDSetter``.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from rocketray.errors import ConfigError
from rocketray.kernels.pack import ID_DIGITS, number_ids
from rocketray.message import PhysicalOffset

__all__ = [
    "OffsetMessageId",
    "UniqueIdGenerator",
    "decode_offset_id",
    "encode_offset_id",
]

_IPV4_ID_BYTES = 16  # 4 + 4 + 8, and 4 + 2 + 4 + 4 + 2
_IPV6_ID_BYTES = 28
_PORT_AND_OFFSET = struct.Struct(">iq")
_UNIQUE_TAIL = struct.Struct(">HIIH")  # process id, generator, milliseconds of the month, counter
_QUARTER_HOUR_MS = 15 * 60 * 1000
_NUMBER_BYTES = 6  # milliseconds of the month and counter
_NUMBER_MASK = (1 << 8 * _NUMBER_BYTES) - 1


@dataclass(frozen=True, slots=True)
class OffsetMessageId:
    """The place of a record: the host that names its store, and its offset in that store's log."""

    store_host: tuple[str, int]
    physical_offset: PhysicalOffset


class UniqueIdGenerator:
    """A source of ids, unique as long as address, process and *generator* are, for any thread.

    Ids of one generator grow within a month. The counter allows 65,536 ids per millisecond; a
    larger burst uses the following milliseconds, where Java's would repeat ids.
    """

    def __init__(
        self, address: str, process_id: int, generator: int, *, clock_ms: Callable[[], int]
    ) -> None:
        """Create ids for *address*, IPv4 or IPv6, as text."""
        head = _UNIQUE_TAIL.pack(process_id & 0xFFFF, generator & 0xFFFFFFFF, 0, 0)[:-_NUMBER_BYTES]
        self.prefix = (_pack_address(address) + head).hex().upper()
        """The common start of every id; twelve hex digits follow."""
        self._clock_ms = clock_ms
        self._next = 0  # milliseconds since 1970 << 16 | counter
        self._lock = threading.Lock()

    def next_id(self) -> str:
        """Return a new id."""
        return f"{self.prefix}{self.take(1):012X}"

    def ids_from(self, first: int, count: int) -> npt.NDArray[np.uint8]:
        """Return *count* ids from the number *first* on, as ASCII.

        They are uint8[count, 32], or uint8[count, 56] for IPv6.
        """
        prefix = np.frombuffer(self.prefix.encode(), np.uint8)
        ids = np.empty((count, len(prefix) + ID_DIGITS), np.uint8)
        number_ids(ids.reshape(-1), prefix, first)
        return ids

    def take(self, count: int) -> int:
        """Return the number behind the prefix of the first of *count* consecutive new ids."""
        with self._lock:
            number = self._clock_ms() << 16
            number = max(number, self._next)
            self._next = number + count
        month_start_ms = _month_start_of((number >> 16) // _QUARTER_HOUR_MS)
        return number - (month_start_ms << 16) & _NUMBER_MASK


def encode_offset_id(store_host: tuple[str, int], physical_offset: int) -> str:
    """Return the id of the record at *physical_offset* in the store named by *store_host*.

    Raises :class:`ConfigError` for a name in place of an address, or a number that does not fit.
    """
    address, port = store_host
    if not 0 <= port < 1 << 31 or not 0 <= physical_offset < 1 << 63:
        raise ConfigError(
            f"port {port} and offset {physical_offset} do not fit into a message id; the limits "
            "are 2147483647 and 9223372036854775807"
        )
    raw = _pack_address(address) + _PORT_AND_OFFSET.pack(port, physical_offset)
    return raw.hex().upper()


def decode_offset_id(text: str) -> OffsetMessageId:
    """Return the parts of an offset id; raise :class:`ConfigError` for a text of another form."""
    raw = _unhex(text)
    port, offset = _PORT_AND_OFFSET.unpack(raw[-12:])
    if port < 0 or offset < 0:
        raise ConfigError(f"message id {text!r} is invalid: its port or its offset is negative")
    address = raw[:-12]
    family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
    return OffsetMessageId((socket.inet_ntop(family, address), port), PhysicalOffset(offset))


def _unhex(text: str) -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) not in (_IPV4_ID_BYTES, _IPV6_ID_BYTES) or len(text) != 2 * len(raw):
        raise ConfigError(
            f"{text[:80]!r} is not a message id: one has 32 hex digits, or 56 with an IPv6 address"
        )
    return raw


def _pack_address(address: str) -> bytes:
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except (OSError, ValueError):
        raise ConfigError(
            f"{address!r} is not an IPv4 or IPv6 address; message ids contain addresses, not names"
        ) from None


@lru_cache(maxsize=16)
def _month_start_of(quarter_hour: int) -> int:
    """Return local midnight of the month's first day, in ms, for a quarter of an hour since 1970.

    Local midnights are on the bounds of these everywhere.
    """
    now = time.localtime(quarter_hour * _QUARTER_HOUR_MS // 1000)
    return int(time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1))) * 1000
