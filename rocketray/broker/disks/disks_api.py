"""The calls about the disks of a cluster: to the coordinator, and to the agent on each disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rocketray.broker.filtering.filter_rules import FilterRules
from rocketray.broker.topics.catalog import TopicCatalog, TopicConfig
from rocketray.runtime.calls.endpoint import (
    COORDINATOR_NAME,
    FILTER_NAME,
    Endpoint,
    on_disk,
    waits,
)
from rocketray.runtime.files.home import Home

from .copy_rounds import FileSums, Known, RoundProgress


@dataclass(frozen=True, slots=True)
class DiskReport:
    """What a disk's agent says of it: ``incarnation`` is another one after each start of it.

    ``unserved`` is why other machines cannot fetch messages of the disk, "" if nothing is wrong.
    """

    incarnation: str
    zone: str
    free_bytes: int
    total_bytes: int
    unserved: str = ""


@dataclass(frozen=True, slots=True)
class CopiedQueue:
    """The outcome of one round of a copy: the bytes that were fetched, and the seconds it took."""

    fetched_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MovedQueue:
    """The outcome of a move: bytes and seconds of all its rounds, and of the last one.

    During ``stopped_s`` nothing was stored in the queue.
    """

    copied_bytes: int
    copied_s: float
    stopped_bytes: int
    stopped_s: float


class QueueSource(Protocol):
    """A queue on another disk, to be copied; its calls raise as those of ``DiskApi``."""

    def sums(self, known: Known) -> dict[str, FileSums]:
        """Return the sums of its files, but for the blocks that are *known*."""

    def blocks(self, wanted: Sequence[tuple[str, list[int]]]) -> Iterator[bytes]:
        """Yield the content of each of *wanted*: blocks of a file."""


class DiskApi(Protocol):
    """The calls of a disk's agent; see ``DiskAgent``."""

    def report(self) -> DiskReport:
        """Return the state of the disk."""

    def keep_catalog(self, catalog: TopicCatalog) -> None:
        """Keep the catalog of the disk's topics: its shard processes read it at their start.

        Raises:
            StoreError: it cannot be written; what was kept before is kept.
        """

    def remove_files(self, topic: TopicConfig) -> None:
        """Remove the files of a deleted topic; raises as ``topic_files.remove_files``."""

    @waits
    def sums_of(self, topic: str, queue_id: int, known: Known) -> dict[str, FileSums]:
        """Return the sums of the files of a queue here; raises as ``queue_copy.sums_of``."""

    @waits
    def read_blocks(self, topic: str, queue_id: int, name: str, blocks: Sequence[int]) -> bytes:
        """Return blocks of a file of a queue here; raises as ``queue_copy.read_blocks``."""

    @waits
    def copy_queue(
        self, topic: TopicConfig, queue_id: int, source: str, *, is_closed: bool
    ) -> CopiedQueue:
        """Fetch what the copy of a queue here lacks, from the disk *source*.

        When the queue *is_closed*, the copy takes the queue's place, verified and on disk.

        Raises:
            StoreError: the copy differs, or another queue is in its place. OSError: a file cannot
                be read or written. ShardUnavailableError: *source* does not answer.
        """

    def copy_progress(self, topic: str, queue_id: int) -> RoundProgress:
        """Return how far the present round of the copy of a queue here is; it does not wait."""

    def remove_queue(self, topic: str, queue_id: int, store_host: tuple[str, int]) -> None:
        """Remove the files of one queue that is on another disk now, and those of a copy.

        Files of another topic of that name stay. Raises OSError if a file cannot be removed.
        """


class DisksApi(Protocol):
    """The coordinator's calls about disks; see ``DiskService``."""

    def homes(self) -> dict[str, Home]:
        """Return the homes of all disks by name; the first one has an empty name."""

    def coordinator_place(self) -> Home:
        """Return the home of the disk on whose machine the coordinator runs."""

    def reports(self) -> dict[str, DiskReport]:
        """Return the last report of each disk that answers, by name."""

    def rules(self) -> FilterRules:
        """Return the filter rules of the cluster."""

    @waits
    def join(self, home: Home, kept: TopicCatalog) -> None:
        """Take a disk into the cluster, or back; return when its shards answer.

        *kept* is the catalog of its topics that the disk has.

        Raises:
            ConfigError: it is the coordinator's own disk, or was restored from a backup that does
                not fit that of the coordinator's.
        """

    @waits
    def move(
        self, topic: str, queue_id: int, disk: str, wait_s: float
    ) -> MovedQueue | RoundProgress:
        """Move a queue to another disk: offsets, ids and messages stay as they are.

        The first call begins the move; each waits up to *wait_s*, and returns how far the present
        round is if the move is still under way.

        Raises:
            TopicNotFoundError, ConfigError: there is no such topic, queue or disk, or it cannot be
                moved. ShardUnavailableError: a disk does not answer. StoreError, OSError: the copy
                failed. In each case the queue is where it was.
        """

    def set_draining(self, disk: str, draining: bool) -> None:  # noqa: FBT001 - one value
        """Give a disk no further queues from now on, or give it some again.

        Raises:
            ConfigError: there is no such disk, or it is the only one that takes queues.
        """

    def draining(self) -> frozenset[str]:
        """Return the disks that get no further queues."""


DISKS = Endpoint(COORDINATOR_NAME, DisksApi)


def agent_of(disk: str) -> Endpoint[DiskApi]:
    """Return the endpoint of a disk's agent, which is in the process of its filter actor."""
    return Endpoint(on_disk(FILTER_NAME, disk), DiskApi)
