"""Unique ids of messages (message_id.py), as a producer creates them.

Source: RocketMQ 5.3.3, ``MessageClientIDSetter``.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from rocketray.kernels.pack import ID_DIGITS, number_ids

from .message_id import pack_address

_UNIQUE_TAIL = struct.Struct(">HIIH")  # process id, generator, milliseconds of the month, counter
_QUARTER_HOUR_MS = 15 * 60 * 1000  # zones differ from UTC by whole quarters of an hour
_NUMBER_BYTES = 6  # milliseconds of the month and counter
_NUMBER_MASK = (1 << 8 * _NUMBER_BYTES) - 1


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
        self.prefix = (pack_address(address) + head).hex().upper()
        """The common start of every id; twelve hex digits follow."""
        self._clock_ms = clock_ms
        self._next = 0  # milliseconds since 1970 << 16 | counter
        self._lock = threading.Lock()

    def next_id(self) -> str:
        """Return a new id, larger than all earlier ones of the month."""
        return f"{self.prefix}{self.take_numbers(1):012X}"

    def ids_from(self, first: int, count: int) -> npt.NDArray[np.uint8]:
        """Return *count* ids from the number *first* on, as ASCII.

        They are uint8[count, 32], or uint8[count, 56] for IPv6.
        """
        prefix = np.frombuffer(self.prefix.encode(), np.uint8)
        ids = np.empty((count, len(prefix) + ID_DIGITS), np.uint8)
        number_ids(ids.reshape(-1), prefix, first)
        return ids

    def take_numbers(self, count: int) -> int:
        """Return the number behind the prefix of the first of *count* consecutive new ids."""
        with self._lock:
            number = self._clock_ms() << 16
            # Also when the clock was set back: then ids continue from the last one, and none
            # repeats.
            number = max(number, self._next)
            self._next = number + count
        month_start_ms = _month_start_of((number >> 16) // _QUARTER_HOUR_MS)
        return number - (month_start_ms << 16) & _NUMBER_MASK


@lru_cache(maxsize=16)
def _month_start_of(quarter_hour: int) -> int:
    """Return local midnight of the month's first day, in ms, for a quarter of an hour since 1970.

    Local midnights are on the bounds of these everywhere.
    """
    now = time.localtime(quarter_hour * _QUARTER_HOUR_MS // 1000)
    return int(time.mktime((now.tm_year, now.tm_mon, 1, 0, 0, 0, 0, 0, -1))) * 1000
