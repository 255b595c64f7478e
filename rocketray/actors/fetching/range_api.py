"""The calls about a disk's fetch service: where it is, and the bounds of the disk's queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketray.actors.calls.endpoint import GATEWAY_NAME, Endpoint, on_disk

from .read_plan import Bounds, DiskPlace, QueueKey

__all__ = ["DiskQueues", "RangeApi", "ranges_of"]


@dataclass(frozen=True, slots=True)
class DiskQueues:
    """The place of a disk, and the bounds of some of its queues."""

    place: DiskPlace
    bounds: dict[QueueKey, Bounds]


class RangeApi(Protocol):
    """The calls of the gateway of a disk; see ``RangeService``."""

    def look(self, queues: Sequence[QueueKey]) -> DiskQueues:
        """Return the bounds of *queues*, and where to fetch them; the first call opens the service.

        Raises:
            ShardUnavailableError: a queue is not open on the disk yet, or not any more.
            OSError: the service cannot listen.
        """


def ranges_of(disk: str) -> Endpoint[RangeApi]:
    """Return the endpoint of the fetch service of a disk."""
    return Endpoint(on_disk(GATEWAY_NAME, disk), RangeApi)
