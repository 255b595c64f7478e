"""The calls about a disk's fetch service: where it is, and the bounds of the disk's queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketray.actors.calls.endpoint import GATEWAY_NAME, Endpoint, on_disk

from .read_plan import Bounds, DiskPlace, QueueKey

__all__ = ["DiskQueues", "QueueRecords", "RangeApi", "ranges_of"]


@dataclass(frozen=True, slots=True)
class DiskQueues:
    """The place of a disk, and the bounds of some of its queues."""

    place: DiskPlace
    bounds: dict[QueueKey, Bounds]


@dataclass(frozen=True, slots=True)
class QueueRecords:
    """The bounds of a queue, and some of its records: a frame (packed_records.py), b"" if none."""

    held: Bounds
    frame: bytes


class RangeApi(Protocol):
    """The calls of the gateway of a disk; see ``RangeService``."""

    def look(self, queues: Sequence[QueueKey]) -> DiskQueues:
        """Return the bounds of *queues*, and where to fetch them; the first call opens the service.

        Raises:
            ShardUnavailableError: a queue is not open on the disk yet, or not any more.
            OSError: the service cannot listen.
        """

    def records(self, queue: QueueKey, start: int, max_count: int) -> QueueRecords:
        """Return the bounds of a queue, and records from *start* on, at most *max_count*.

        Large records make them fewer, but one at least if there is one. With no *max_count* only
        the bounds are returned.

        Raises:
            ShardUnavailableError: the queue is not open on the disk yet, or not any more.
            OffsetOutOfRangeError: records from *start* on are deleted by now.
        """


def ranges_of(disk: str) -> Endpoint[RangeApi]:
    """Return the endpoint of the fetch service of a disk."""
    return Endpoint(on_disk(GATEWAY_NAME, disk), RangeApi)
