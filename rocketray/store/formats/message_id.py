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
from dataclasses import dataclass

from rocketray.errors import ConfigError
from rocketray.message import PhysicalOffset

_IPV4_ID_BYTES = 16  # 4 + 4 + 8, and 4 + 2 + 4 + 4 + 2
_IPV6_ID_BYTES = 28  # 16 bytes of address in place of 4
_PORT_AND_OFFSET = struct.Struct(">iq")


@dataclass(frozen=True, slots=True)
class OffsetMessageId:
    """The place of a record: the host that names its store, and its offset in that store's log."""

    store_host: tuple[str, int]
    physical_offset: PhysicalOffset


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
    raw = pack_address(address) + _PORT_AND_OFFSET.pack(port, physical_offset)
    return raw.hex().upper()


def decode_offset_id(text: str) -> OffsetMessageId:
    """Return the parts of an offset id; raise :class:`ConfigError` for a text of another form."""
    raw = _unhex(text)
    port, offset = _PORT_AND_OFFSET.unpack(raw[-12:])  # i32, i64: the end of either form
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


def pack_address(address: str) -> bytes:
    """Return the bytes of an address; raise :class:`ConfigError` for a name."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except (OSError, ValueError):
        raise ConfigError(
            f"{address!r} is not an IPv4 or IPv6 address; message ids contain addresses, not names"
        ) from None
