"""Where what was appended went."""

from __future__ import annotations

from dataclasses import dataclass

from rocketray.message import PhysicalOffset, QueueOffset

__all__ = ["AppendResult", "PutResult"]


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a batch went: its messages have consecutive queue offsets, and one store time."""

    first_queue_offset: QueueOffset
    first_physical_offset: PhysicalOffset
    count: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class PutResult:
    """Where one message went."""

    queue_id: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    store_timestamp_ms: int
