"""The single writer of a shard: takes batches from rings and calls, and stores each of them once.

Plain Python: a shard process (shard_process.py) gives it threads and an address.

Invariants
  1. Everything that touches the store happens under one lock, in one process (the store's file
     lock), in the newest incarnation (the epoch, checked before each pass).
  2. Readers see a message after it is complete in the log, the queue and the index. A message that
     was sent for ``disk`` is visible after it is on disk, and so is every message behind it.
  3. A batch is acknowledged after its durability was reached, and appended once even if the process
     dies in between (ring.py, invariant 2): the frame in which an earlier incarnation died is
     completed when its ring is attached. Rings of earlier incarnations are attached before anything
     else is appended.
  4. A batch that was sent by a call is stored before its sender's wait ends, or never: a sender
     that then does not find it may send it again.
  5. A closed writer touches no ring: they belong to the next one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rocketray.base.ack_mode import Durability
from rocketray.base.config import StoreConfig
from rocketray.broker.filtering.shard_bitmaps import ShardBitmaps
from rocketray.broker.topics.topic_files import check_store_host
from rocketray.errors import OffsetOutOfRangeError, StoreFullError
from rocketray.filters.consumer_filter_data import ConsumerFilterData
from rocketray.groups.group_descriptions import LiveSubscription
from rocketray.message import StoredMessage
from rocketray.runtime.clock import steady_clock_ms
from rocketray.runtime.files.paths import CONTROL_PAGE
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.runtime.ipc.control_page import ControlPage
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.batches.encoded_batch import unpack_batch
from rocketray.store.files.store_settings import read_settings
from rocketray.store.message_store import MessageStore
from rocketray.store.retention import FULL, DiskUse, ExpiredFile, RetentionPolicy

from .ownership_fence import OwnershipFence
from .repeated_batches import BatchIdentity
from .shard_api import ShardStatistics
from .shard_appends import ShardAppends
from .shard_rings import ShardRings
from .staged_appends import StagedAppends
from .unflushed import Unflushed

_LOG = logging.getLogger(__name__)
_NOT_ADMITTED = {
    AppendStatus.STORE_FULL: "its disk is full; free space there (rocketray status names it)",
    AppendStatus.NOT_WRITABLE: "the topic has no write permission; change it with: rocketray topics "
    "alter TOPIC --perm 6",
}
_SAME_BATCHES_MAX = 4  # more than one if a crash left the beginning of one in the log


class ShardWriter:
    """The writer and owner of the store directory of one ``(topic, queueId)``."""

    def __init__(
        self,
        directory: Path,
        topic: str,
        queue_id: int,
        config: StoreConfig,
        *,
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int] = steady_clock_ms,
    ) -> None:
        """Open the store, which recovers it, and begin a new epoch.

        A directory keeps the sizes that it was created with; *config* is for a new one.

        Raises:
            StoreLockedError: another process owns the shard. StoreError: the directory is of
                another topic.
        """
        kept = read_settings(directory)
        check_store_host(directory, kept, config.store_host, f"{topic}/{queue_id}")
        self.store = MessageStore(
            directory, config if kept is None else None, clock_ms=clock_ms, adds_units=False
        )
        self._topic = topic
        self._queue_id = queue_id
        self._lock = threading.Lock()
        # Taken before the other one, and held while files are removed, for which no append waits.
        self._expiry_lock = threading.Lock()
        with ExitStack() as opened:
            opened.callback(self.store.close)
            self.control = ControlPage(directory / CONTROL_PAGE, create=True)
            # Readers may have seen more than recovery found: these offsets are not given again.
            if self.control.visible():
                self.store.skip_to(topic, queue_id, self.control.visible())
            unflushed = Unflushed(self.store.reads, steady_ms)
            self.unflushed_ms = unflushed.age_ms
            """Return the age of the oldest message that is not on disk; waits for nothing."""
            fence = OwnershipFence(self.store.reads, topic, clock_ms)
            self.appends = ShardAppends(
                self.store, self.control, topic, queue_id, unflushed, fence=fence
            )
            self.rings = ShardRings(self.appends, self._lock)
            self._staged = StagedAppends(self.appends, self.store.reads, topic, queue_id)
            self.bitmaps = ShardBitmaps(self.store, topic, self.control, clock_ms)
            self._publish_minimum()
            self.control.publish_visible(self.appends.next_queue_offset())
            opened.pop_all()

    def append(
        self,
        payload: bytes,
        durability: Durability,
        *,
        is_too_late: Callable[[], bool] = lambda: False,
    ) -> Ack:
        """Store one packed batch that was sent by a call, unless *is_too_late* when its turn comes.

        Raises:
            ShardUnavailableError: it is, or the shard was closed; nothing was stored.
        """
        with self._lock:
            self.appends.check_open()
            if is_too_late():
                raise self.appends.unavailable(
                    "the sender had stopped waiting for the call; nothing was stored"
                )
            ack = self.appends.append(unpack_batch(payload))
            self.appends.publish_appended(to_disk=durability.needs_sync)
            return ack

    def append_built(self, build: Callable[[], EncodedBatch | None]) -> Ack:
        """Store the batch of *build*, if any; nothing else is stored meanwhile."""
        with self._lock:
            batch = build()
            ack = Ack(AppendStatus.OK) if batch is None else self.appends.append(batch)
            self.appends.publish_appended(to_disk=False)
            return ack

    def append_staged(self, batches: Sequence[EncodedBatch], *, in_doubt: bool) -> Ack:
        """Store staged batches, as far as they are not stored (staged_appends.py); on disk then.

        Raises:
            ShardUnavailableError: the shard was closed; nothing was stored.
        """
        with self._lock:
            self.appends.check_open()
            try:
                return self._staged.append(batches, in_doubt=in_doubt)
            finally:  # also what was stored before an error: it is found by its keys next time
                self.appends.publish_appended(to_disk=True)

    def fence(self, owner_epoch: int) -> int:
        """Store nothing of older owners from now on; return the newest epoch, which is on disk.

        It is larger than *owner_epoch* if there is a newer owner.

        Raises:
            ShardUnavailableError: the shard was closed, or the epoch cannot be stored now.
            StoreError: it cannot be brought to disk.
        """
        with self._lock:
            self.appends.check_open()
            status = self.appends.admit(owner_epoch)
            if status not in (AppendStatus.OK, AppendStatus.OWNER_FENCED):
                reason = _NOT_ADMITTED.get(status, "see its log")
                raise self.appends.unavailable(
                    f"the epoch of the queue's new owner cannot be stored: {reason}"
                )
            self.appends.publish_appended(to_disk=True)
            return self.appends.fence.newest()

    def find_batch(self, wanted: BatchIdentity) -> Ack | None:
        """Return the outcome of a batch, if all of it is stored."""
        with self.reading():
            reads = self.store.reads
            for found in reads.query(self._topic, wanted.first_key, _SAME_BATCHES_MAX):
                last = found.queue_offset + wanted.messages - 1
                is_its = wanted.is_of(found.born_timestamp_ms)
                if is_its and last < self.appends.next_queue_offset():
                    entry = reads.queue_entry(self._topic, self._queue_id, last)
                    if reads.view(entry.physical_offset).unique_key == wanted.last_key:
                        return self.appends.whole_ack(found.queue_offset, wanted.messages)
            return None

    def flush(self, *, everything: bool = False) -> None:
        """Bring all messages to disk, and *everything* else; by a timer, beside the writer."""
        self.appends.flush(everything=everything)

    def rest(self) -> bool:
        """Return whether the shard needs no timer until the store calls its ``on_wake``."""
        with self._lock:
            return self.appends.is_closed or self.store.rest()

    def prepare_next(self) -> None:
        """Create the next files, so that no append waits for them; also called by the timer."""
        try:
            self.store.prepare_next()
        except StoreFullError as error:
            _LOG.warning("shard %s: %s", self.appends.name, error)

    def watch_disk(self, disk: DiskUse) -> None:
        """Refuse messages from now on if the disk is too full, or accept them again."""
        is_full = disk.reaches(FULL)
        if is_full != self.appends.is_disk_full:
            _LOG.warning(
                "shard %s: %.0f %% of the disk is in use: messages are %s",
                self.appends.name,
                100 * disk.ratio,
                "refused; free space, or shorten the retention" if is_full else "accepted again",
            )
        self.appends.is_disk_full = is_full

    def expire(
        self, policy: RetentionPolicy, needed_from: int | None, disk: DiskUse
    ) -> list[ExpiredFile]:
        """Remove files by *policy*; groups still need queue offset *needed_from* and later ones.

        Readers learn the new minimum before a file is removed. For any thread.

        Raises:
            StoreError: a file cannot be removed; the next call tries again.
        """
        with self._expiry_lock:
            return self.store.expire(
                policy,
                disk,
                needed={} if needed_from is None else {(self._topic, self._queue_id): needed_from},
                guard=self._lock,
                announce=self._publish_minimum,
            )

    def keep_bitmaps(
        self, living: Sequence[LiveSubscription] | None
    ) -> dict[str, ConsumerFilterData]:
        with self._lock:
            return self.bitmaps.keep(living)

    def statistics(self) -> ShardStatistics:
        """Return counters and offsets, read together."""
        with self._lock:
            return ShardStatistics(
                topic=self._topic,
                queue_id=self._queue_id,
                epoch=self.appends.epoch,
                min_queue_offset=self.appends.min_queue_offset(),
                max_queue_offset=self.appends.next_queue_offset(),
                min_physical_offset=self.store.reads.min_physical_offset,
                max_physical_offset=self.store.reads.max_physical_offset,
                flushed_physical_offset=self.control.flushed(),
                unflushed_ms=self.unflushed_ms(),
                batches=self.appends.batches,
                messages=self.appends.messages,
                refused_batches=self.appends.refused,
                rings=len(self.rings),
                keeps_bitmaps=self.bitmaps.are_kept,
            )

    def message_at(self, queue_offset: int) -> StoredMessage | None:
        """Return the message at a queue offset, or None; called while :meth:`reading` is held."""
        try:
            entry = self.store.reads.queue_entry(self._topic, self._queue_id, queue_offset)
        except OffsetOutOfRangeError:
            return None
        return self.store.reads.view(entry.physical_offset)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock under which queries read the store beside the writer.

        Raises:
            ShardUnavailableError: the shard was closed.
        """
        with self._lock:
            self.appends.check_open()
            yield

    def close(self) -> None:
        """Bring everything to disk and release the directory, also if that fails."""
        with self._expiry_lock, self._lock:
            if self.appends.is_closed:
                return
            self.appends.is_closed = True
            self.rings.let_go()
            try:
                self.flush()
            finally:
                self.store.close()

    def _publish_minimum(self) -> None:
        self.control.publish_minimum(self.appends.min_queue_offset())
