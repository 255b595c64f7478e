"""What an acknowledgement of a batch says, and what it waits for: plain values, of no ring."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from rocketray.kernels.ring_numbers import (
    DURABILITY_DISK,
    DURABILITY_MEMORY,
    SLOT_OK,
    SLOT_PENDING,
)


class Durability(IntEnum):
    """When a frame is acknowledged: once it is in the log's memory, or on disk; kernels read it."""

    MEMORY = DURABILITY_MEMORY
    DISK = DURABILITY_DISK


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
