"""What is read of a queue: a range of its offsets, the columns and the filter; all plain values.

Loads no kernels, so that planners, which read nothing, start quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from rocketray.base.limits import Limit, SentOffset, SentQueueId, SentTopic
from rocketray.errors import StoreError
from rocketray.runtime.files.restorations import Restoration
from rocketray.store.queues.queue_gaps import NO_GAPS, QueueGaps

from .sent_filters import SentTextFilter

QueueKey = tuple[SentTopic, SentQueueId]
Warn = Callable[[str], None]
"""Takes a line for the log of the query."""
_BATCH_ROWS_MAX = 1_000_000  # BATCH_BYTES ends a batch of the least records after 92,000


@dataclass(frozen=True, slots=True)
class Bounds:
    """The present range of a queue: the messages from *minimum* up to, not including, *visible*.

    No message has an offset in *gaps*. *restorations* are those of the queue, oldest first.
    """

    minimum: int
    visible: int
    gaps: QueueGaps = NO_GAPS
    restorations: tuple[Restoration, ...] = ()

    def start_from(self, offset: int) -> int:
        """Return *offset*, or the first message's or the end if the queue has no such position."""
        return max(self.minimum, min(offset, self.visible))

    def common_end(self, known: Collection[str]) -> int | None:
        """Return up to where the queue has what it had after the restorations *known* by their ids.

        None if there was no other one since.
        """
        return min((each.end for each in self.restorations if each.id not in known), default=None)


@dataclass(frozen=True, slots=True)
class Range:
    """The messages of one queue from *start* up to, not including, *stop*; never empty."""

    key: QueueKey
    start: SentOffset
    stop: SentOffset


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
    """The part that every task of a query shares: picklable, the same for all its ranges.

    Its limits are those of a plan for another machine: beside the files predicates run, too.
    """

    subscription: SentTextFilter
    columns: tuple[str, ...]
    batch_rows: Annotated[int, Limit(_BATCH_ROWS_MAX, least=1)]
    fail_on_data_loss: bool


def check_loss(key: QueueKey, asked: int, held: Bounds, *, fail: bool, warn: Warn) -> None:
    """Raise, or only warn of, the error that names the messages that a query cannot read any more.

    Raises:
        StoreError: *fail* is set.
    """
    topic, queue_id = key
    error = StoreError(
        f"topic {topic!r} queue {queue_id}: messages {asked} to {held.minimum - 1} were deleted "
        f"before this query read them; the queue now holds {held.minimum} up to, not including, "
        f"{held.visible}. To continue with those, set failOnDataLoss=false (in a read by "
        "rr.ray_data: fail_on_data_loss=False)"
    )
    if fail:
        raise error
    warn(str(error))
