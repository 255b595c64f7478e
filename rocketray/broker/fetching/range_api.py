"""The calls about a disk's fetch service: where it is, and the bounds of the disk's queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketray.message import StoredMessage
from rocketray.runtime.calls.endpoint import GATEWAY_NAME, Endpoint, on_disk

from .read_plan import Bounds, DiskPlace, QueueKey

REPLY_BYTES = 16 * 1024 * 1024
"""A reply has that much, and 8 MiB of its last queue, at most: it goes through Ray's objects."""


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

    def messages(self) -> list[StoredMessage]:
        """Return the records, decoded one by one."""
        from rocketray.store.reading.packed_records import unpack_records  # noqa: PLC0415 - kernels

        if not self.frame:
            return []
        found = unpack_records(self.frame)
        return found.reader.messages(found.entries)


class RangeApi(Protocol):
    """The calls of the gateway of a disk; see ``RangeService``."""

    def look(self, queues: Sequence[QueueKey]) -> DiskQueues:
        """Return the bounds of *queues*, and where to fetch them; the first call opens the service.

        Raises:
            ShardUnavailableError: a queue is not open on the disk yet, or not any more.
            OSError: the service cannot listen.
        """

    def records(
        self, positions: Mapping[QueueKey, int], max_count: int
    ) -> dict[QueueKey, QueueRecords]:
        """Return the bounds of queues, and records of each from its position on.

        There are at most *max_count* records of a queue; large ones make them fewer, but at least
        one if there is one. When the reply has ``REPLY_BYTES``, further queues give none. Where
        records were deleted, they begin with the first that exists.

        Raises:
            ShardUnavailableError: a queue is not open on the disk yet, or not any more.
        """


class PlaceApi(Protocol):
    """The call of processes that do not join Ray, to find the fetch service of a disk."""

    def place(self) -> DiskPlace:
        """Return the place of the disk, with its service; raises as :meth:`RangeApi.look`."""


def ranges_of(disk: str) -> Endpoint[RangeApi]:
    return Endpoint(on_disk(GATEWAY_NAME, disk), RangeApi)


def place_of(disk: str) -> Endpoint[PlaceApi]:
    return Endpoint(on_disk(GATEWAY_NAME, disk), PlaceApi)
