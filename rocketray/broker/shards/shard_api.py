"""The services of a shard process for each of its shards, and the values that they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rocketray.broker.topics.catalog import TopicConfig
from rocketray.filters.consumer_filter_data import ConsumerFilterData
from rocketray.filters.verdict_values import BitmapFacts
from rocketray.groups.group_descriptions import LiveSubscription
from rocketray.message import StoredMessage
from rocketray.runtime.calls.endpoint import CALL_TIMEOUT_S, Endpoint, once, process_actor
from rocketray.runtime.clock import steady_clock_ms
from rocketray.runtime.files.fragment_file import FragmentFrame
from rocketray.runtime.ipc.acknowledgement import Ack
from rocketray.store.queues.ext_unit import ExtUnit
from rocketray.store.recovery.problem import Problem
from rocketray.store.retention import RetentionPolicy

from .day_counts import DayCounts

_PIECE_BYTES = 64 * 1024  # Ray moves an argument over 100 kB through two object stores: 5 ms more
_PIECES_MAX = 16  # more take longer than that


@dataclass(frozen=True, slots=True)
class ExpiryOrder:
    """What one shard is to remove: files beyond its topic's retention that no group needs."""

    topic: TopicConfig
    queue_id: int
    policy: RetentionPolicy
    needed_from: int | None


@dataclass(frozen=True, slots=True)
class ShardStatistics:
    """A shard's counters since its process started, and its offsets.

    ``unflushed_ms`` is the age of the oldest message that is not on disk, 0 if there is none.
    """

    topic: str
    queue_id: int
    epoch: int
    min_queue_offset: int
    max_queue_offset: int
    min_physical_offset: int
    max_physical_offset: int
    flushed_physical_offset: int
    unflushed_ms: int
    batches: int
    messages: int
    refused_batches: int
    rings: int
    keeps_bitmaps: bool


@dataclass(frozen=True, slots=True)
class QueueProducer:
    """A process of the shard's machine that sends to a queue; in a process each producer counts.

    ``program`` is what it runs, "" if that is not known; the other fields are those of its ring.
    """

    topic: str
    queue_id: int
    machine: str
    pid: int
    program: str
    release: str
    opened_ms: int
    batches: int
    stored_ms: int


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """A message and its queue: ``tags_code`` of its entry, and the queue's offsets.

    ``is_dispatched`` says whether the entry at the message's queue offset leads to it; ``unit`` is
    the extension unit of the entry, ``filters`` the filters of the shard's bitmaps, by group.
    """

    message: StoredMessage
    is_dispatched: bool
    tags_code: int | None
    min_queue_offset: int
    max_queue_offset: int
    unit: ExtUnit | None = None
    filters: Mapping[str, ConsumerFilterData] = field(default_factory=dict)

    def bitmap_of(self, group: str) -> BitmapFacts | None:
        """Return the bitmap facts for a stream of *group*; None if the shard never kept bitmaps."""
        known = self.filters.get(group)
        if self.unit is not None:
            return BitmapFacts(self.unit.bitmap, self.unit.store_timestamp_ms, known)
        return BitmapFacts(registered=known) if self.filters else None


@dataclass(frozen=True, slots=True)
class ScrubState:
    """How far a shard was read again; times are by the wall clock.

    ``verified_ms`` is when the last pass ended, ``begun_ms`` when that under way began, each None
    if there is none. The pass has read ``done_bytes`` of ``all_bytes``. ``damage`` is what was
    found and not repaired, in files below ``directory``.
    """

    directory: str
    verified_ms: int | None = None
    begun_ms: int | None = None
    done_bytes: int = 0
    all_bytes: int = 0
    damage: tuple[Problem, ...] = ()


class ShardApi(Protocol):
    """The calls of producers and of the coordinator; see ``OwnedShard``."""

    def attach_ring(self, path: str) -> None:
        """Begin to read a producer's ring."""

    @once
    def append(
        self,
        payload: bytes,
        durability: int,
        *rest: bytes,
        attempt: int = 0,
        not_after_ms: int | None = None,
    ) -> Ack:
        """Store a packed batch, not later than *not_after_ms*, and return its outcome.

        *rest* are further pieces of the batch, if it is given in pieces (:func:`pieces_of`).
        """

    @once
    def append_staged(
        self, fragment: str, frames: Sequence[FragmentFrame], *content: bytes, in_doubt: bool
    ) -> Ack:
        """Store frames of a fragment, which is staged on the shard's disk; on disk on return.

        *content* has their bytes if the fragment is on another disk. What the queue has of a frame
        is not stored again, if it is *in_doubt*, or was stored by this process before.

        Raises:
            FileNotFoundError: there is no such fragment. CorruptRecordError: a frame is damaged.
        """

    def fence(self, owner_epoch: int) -> int:
        """Store no batch with an older ownership epoch from now on; on disk on return.

        Return the newest epoch: a larger one than *owner_epoch* if there is a newer owner.
        """

    def sync(self) -> None:
        """Bring to disk what is stored, by whatever call; raises :class:`StoreError`."""

    def statistics(self) -> ShardStatistics:
        """Return counters and offsets."""

    def set_writable(self, writable: bool) -> None:  # noqa: FBT001 - one value of one switch
        """Accept batches of producers, or refuse them."""

    def keep_bitmaps(
        self, living: Sequence[LiveSubscription] | None
    ) -> dict[str, ConsumerFilterData]:
        """Keep filter bitmaps for these groups from now on, or none."""


class ShardProcessApi(Protocol):
    """The calls of a shard process as a whole; see ``ShardReports``."""

    def statistics(self) -> list[ShardStatistics]:
        """Return counters and offsets of each shard that is open."""

    def producers(self) -> list[QueueProducer]:
        """Return the producers of its machine that have a ring to an open shard."""

    def midnights(self) -> tuple[int, int]:
        """Return when yesterday and today began on its machine, in ms since 1970."""

    def stored_by_day(self, yesterday_ms: int, today_ms: int, topic: str | None) -> list[DayCounts]:
        """Return what each open shard stored since then, of one topic or of all."""


class LookupApi(Protocol):
    """The calls that look up messages of one shard; see ``ShardLookups``."""

    def view(self, physical_offset: int) -> StoredMessage | None:
        """Return the message at a physical offset, or None if no record begins there."""

    def facts(self, message: StoredMessage) -> StoredFacts:
        """Return the facts on a message of this shard."""

    def message_at(self, queue_offset: int) -> StoredMessage | None:
        """Return the message at a queue offset, or None if there is none."""

    def offset_at_time(self, time_ms: int) -> int:
        """Return the offset of the first message stored at that time or later, else the end."""

    def query(
        self, key: str, max_count: int, begin_ms: int, end_ms: int, *, strict: bool = False
    ) -> list[StoredMessage]:
        """Return the messages with that key, oldest first; if *strict*, all or an error."""

    def query_by_time(self, begin_ms: int, end_ms: int, max_count: int) -> list[StoredMessage]:
        """Return the first messages stored from *begin_ms* up to and including *end_ms*."""


def shard_of(topic: TopicConfig, queue_id: int) -> Endpoint[ShardApi]:
    return Endpoint(process_actor(topic.process_of(queue_id)), ShardApi, (topic.name, queue_id))


def shards_of(topic: TopicConfig) -> list[Endpoint[ShardApi]]:
    """Return the endpoints of all shards of a topic, by queue."""
    return [shard_of(topic, queue_id) for queue_id in range(topic.queues)]


def process_of(process: str) -> Endpoint[ShardProcessApi]:
    return Endpoint(process_actor(process), ShardProcessApi, (process,))


def lookups_of(topic: TopicConfig, queue_id: int) -> Endpoint[LookupApi]:
    return Endpoint(process_actor(topic.process_of(queue_id)), LookupApi, (topic.name, queue_id))


def pieces_of(payload: bytes) -> list[bytes]:
    """Return a packed batch in the pieces in which a call takes the least time."""
    if len(payload) > _PIECES_MAX * _PIECE_BYTES:
        return [payload]
    return [payload[at : at + _PIECE_BYTES] for at in range(0, len(payload), _PIECE_BYTES)]


def call_ends_ms() -> int:
    """Return when the caller of a call made now stops waiting, on the machine's steady clock."""
    return steady_clock_ms() + int(CALL_TIMEOUT_S * 1000)
