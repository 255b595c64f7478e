"""What is read of a queue: a range of its offsets, the columns and the filter; all plain values.

Loads no kernels, so that planners, which read nothing, start quickly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rocketray.errors import StoreError
from rocketray.filters.subscription import Subscription
from rocketray.store.queues.queue_gaps import NO_GAPS, QueueGaps

__all__ = [
    "Bounds",
    "DiskPlace",
    "FetchService",
    "QueueKey",
    "Range",
    "ReadPlan",
    "Warn",
    "check_loss",
]

QueueKey = tuple[str, int]
"""A topic and a queue id."""
Warn = Callable[[str], None]
"""Takes a line for the log of the query."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The present range of a queue: the messages from *minimum* up to, not including, *visible*.

    No message has an offset in *gaps*.
    """

    minimum: int
    visible: int
    gaps: QueueGaps = NO_GAPS

    def start_from(self, offset: int) -> int:
        """Return *offset*, or the first message's if the queue has no such position.

        An offset after the end means that the queue was created again, so all of it is new.
        """
        return offset if self.minimum <= offset <= self.visible else self.minimum


@dataclass(frozen=True, slots=True)
class Range:
    """The messages of one queue from *start* up to, not including, *stop*; never empty."""

    key: QueueKey
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class FetchService:
    """The address of a disk's fetch service, and what a client of it needs.

    ``certificate`` is the one of the service, in PEM; without one, on loopback, there is no TLS.
    """

    host: str
    port: int
    token: str = field(repr=False)
    certificate: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class DiskPlace:
    """The place of a queue's files: a data directory, of a disk with that UUID if one is given.

    ``machine`` is the one that the disk's node was started on; ``service`` is for the others. With
    ``is_store`` the directory is that of a store, which may belong to no node.
    """

    data: Path
    uuid: str = ""
    machine: str = ""
    service: FetchService | None = None
    is_store: bool = False


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The part that every task of a query shares: picklable, the same for all its ranges."""

    subscription: Subscription
    columns: tuple[str, ...]
    batch_rows: int
    fail_on_data_loss: bool


def check_loss(key: QueueKey, asked: int, held: Bounds, *, fail: bool, warn: Warn) -> None:
    """Raise, or only warn of, the error that names the messages that a query cannot read any more.

    Raises:
        StoreError: *fail* is set.
    """
    topic, queue_id = key
    if asked < held.minimum:
        what = f"messages {asked} to {held.minimum - 1} were deleted before this query read them"
    else:
        what = (
            f"the query had reached message {asked}, and the queue ends at {held.visible}: it was "
            "recreated"
        )
    error = StoreError(
        f"topic {topic!r} queue {queue_id}: {what}; the queue now holds {held.minimum} up to, "
        f"not including, {held.visible}. To continue with those, set failOnDataLoss=false (in a read "
        "by rr.ray_data: fail_on_data_loss=False)"
    )
    if fail:
        raise error
    warn(str(error))
