"""What an acknowledgement of a batch says: plain values, of no ring; base/ack_mode.py: when."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from rocketray.kernels.ring_numbers import SLOT_OK, SLOT_PENDING


class AppendStatus(IntEnum):
    """The outcome of a frame, as a number in its slot.

    Rings outlive the process of their shard, so a number keeps its meaning: others may be added.
    """

    PENDING = SLOT_PENDING
    OK = SLOT_OK
    MESSAGE_ILLEGAL = 2
    STORE_FULL = 3
    FENCED = 4
    NOT_WRITABLE = 5
    FAILED = 6
    OWNER_FENCED = 7


class Ack(NamedTuple):
    """The outcome of one batch; physical offsets of its records follow from their sizes."""

    status: AppendStatus
    first_queue_offset: int = -1
    first_physical_offset: int = -1
    store_timestamp_ms: int = 0
    messages: int = 0
