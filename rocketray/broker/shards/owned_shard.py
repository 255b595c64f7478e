"""One shard as its process owns it: the object behind ``ShardApi``.

Plain Python. A shard process (shard_process.py) has one or many of these.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from rocketray.base.ack_mode import durability_numbered
from rocketray.base.config import StoreConfig
from rocketray.broker.topics.catalog import TopicConfig
from rocketray.broker.topics.topic_files import check_is_there
from rocketray.errors import InvalidMessageError, StoreVersionError, StreamError
from rocketray.runtime.clock import steady_clock_ms
from rocketray.runtime.files.fragment_file import FragmentFrame, check_fragment, read_frame
from rocketray.runtime.files.paths import (
    filter_doorbell_path,
    producer_rings_directory,
    shard_directory,
    staged_directory,
)
from rocketray.runtime.files.state_files import disk_use
from rocketray.runtime.ipc.acknowledgement import Ack, AppendStatus
from rocketray.runtime.ipc.control_page import Doorbell
from rocketray.runtime.ipc.process_doorbell import QueueBell
from rocketray.runtime.processes import is_alive, owner_pid
from rocketray.store.batches.encoded_batch import unpack_batch
from rocketray.store.retention import RetentionPolicy

from .compaction import Compaction
from .repeated_batches import RepeatedBatches
from .shard_lookups import ShardLookups
from .shard_problems import AHEAD_MAX_MS, UNFLUSHED_MAX_MS, ShardProblems, problems_of
from .shard_scrub import ShardScrub
from .shard_writer import ShardWriter

_LOG = logging.getLogger(__name__)
_QUIET_FLUSHES = 6  # 3 s: noting that a store is at rest, and is not, costs more than a message


def why_closed(name: str, error: BaseException, advice: str) -> str:
    """Return why *name* stays closed, in one line for ``rocketray status`` and its callers."""
    is_expected = isinstance(error, StreamError | OSError)
    return f"queue {name} stays closed: {error if is_expected else repr(error)}; {advice}"


class OwnedShard:
    """One ``(topic, queueId)`` that this process writes: the object behind ``ShardApi``."""

    def __init__(
        self,
        data: Path,
        topic: TopicConfig,
        queue_id: int,
        config: StoreConfig,
        *,
        clock_ms: Callable[[], int],
        doorbell: QueueBell | None = None,
        filter_doorbell: Doorbell | None = None,
    ) -> None:
        """Open the shard, which recovers it, and store the batches in the rings of its producers.

        *doorbell* wakes the thread that drains it, if there is one; *filter_doorbell* wakes the
        node's filters.

        Raises:
            StoreLockedError: another process owns the shard. StoreError: its directory is missing,
                or is another topic's.
        """
        self._topic = topic.name
        self._queue_id = queue_id
        self.place = topic.name, queue_id
        self._fragments = staged_directory(data)
        self.directory = shard_directory(data, topic.name, queue_id)
        # First: the writer would create what is missing, as an empty queue.
        check_is_there(self.directory, topic, queue_id)
        self.writer = ShardWriter(self.directory, topic.name, queue_id, config, clock_ms=clock_ms)
        # Held over a batch that may be repeated, and taken before the writer's lock: its second
        # attempt waits until the outcome of the first one is known.
        self._calls = threading.Lock()
        self._prepared_end = self._flushed_end = -1
        self._quiet_flushes = 0
        with ExitStack() as opened:
            opened.callback(self.writer.close)
            self.lookups = ShardLookups(self.writer, topic.name, queue_id, drain=self.drain)
            self.statistics = self.writer.statistics
            self.unflushed_ms = self.writer.unflushed_ms
            self.keep_bitmaps = self.writer.keep_bitmaps
            self._repeated = RepeatedBatches(self.writer.find_batch)
            self._compaction = Compaction(self.writer, topic.name, queue_id)
            self._clock_ms = clock_ms
            self.scrub = ShardScrub(self.writer.store, clock_ms)
            """Reads the stored messages again, when its owner has it do so."""
            self._doorbell = doorbell
            self.device = self.directory.stat().st_dev
            """The disk that the shard is on."""
            self._filter_doorbell = filter_doorbell or Doorbell(filter_doorbell_path(data))
            self._watch_disk()
            self.writer.appends.writable = topic.writable
            self._take_over(producer_rings_directory(data, topic.name, queue_id))
            opened.pop_all()

    def attach_ring(self, path: str) -> None:
        """Begin to read a producer's ring, which may have batches already."""
        self.writer.rings.attach_ring(Path(path))
        if self._doorbell is not None:
            self._doorbell.ring()  # the producer may have rung before its ring was known here

    def drain(self) -> int:
        """Store the batches in the rings, and wake the filters; return the number of batches."""
        count = self.writer.rings.drain()
        if count:
            self._filter_doorbell.ring()
        return count

    def append(
        self,
        payload: bytes,
        durability: int,
        *rest: bytes,
        attempt: int = 0,
        not_after_ms: int | None = None,
    ) -> Ack:
        """Store a packed batch: the call for producers of other nodes, and for large batches.

        A batch may come in pieces: *payload* is the first one, *rest* are the others.
        *attempt* is 0 for a batch that is sent only once. From 1 on, attempts are counted: such a
        batch has unique keys that no other has, and is stored once, however often it is sent. The
        sender waits until *not_after_ms*, by the machine's steady clock: it is not stored later.

        Raises:
            ShardUnavailableError: its turn came later; nothing was stored.
            InvalidMessageError, CorruptRecordError: it is not a packed batch, or *durability* is
                not the number of a mode.
        """
        mode = durability_numbered(durability)
        if mode is None:
            raise InvalidMessageError(
                f"this node has no ack mode with the number {durability!r:.20}; upgrade the node, or "
                "send with another mode"
            )
        if rest:
            payload = b"".join((payload, *rest))

        def is_too_late() -> bool:
            return not_after_ms is not None and steady_clock_ms() > not_after_ms

        def append() -> Ack:
            return self.writer.append(payload, mode, is_too_late=is_too_late)

        if attempt:
            with self._calls:
                ack = self._repeated.once(unpack_batch(payload), append, is_repeat=attempt > 1)
                if attempt > 1 and ack.status is AppendStatus.OK and mode.needs_sync:
                    self.writer.flush()  # an earlier attempt may have been stored in memory only
        else:
            ack = append()
        self._filter_doorbell.ring()
        return ack

    def append_staged(
        self, fragment: str, frames: Sequence[FragmentFrame], *content: bytes, in_doubt: bool
    ) -> Ack:
        path = self._fragments / check_fragment(fragment)
        payloads = content or [read_frame(path, frame) for frame in frames]
        batches = [unpack_batch(payload) for payload in payloads]
        ack = self.writer.append_staged(batches, in_doubt=in_doubt)
        self._filter_doorbell.ring()
        return ack

    def fence(self, owner_epoch: int) -> int:
        if owner_epoch < 1:
            raise InvalidMessageError(f"the ownership epoch {owner_epoch} is not one of a grant")
        newest = self.writer.fence(owner_epoch)
        self._filter_doorbell.ring()
        return newest

    def sync(self) -> None:
        self.writer.flush()

    def set_writable(self, writable: bool) -> None:  # noqa: FBT001 - one value of one switch
        self.writer.appends.writable = writable

    def expire(self, policy: RetentionPolicy, needed_from: int | None) -> None:
        """Remove old files; see :meth:`ShardWriter.expire` and :class:`Compaction`."""
        disk = disk_use(self.directory)
        if policy.compacts:
            self._compaction.run(disk)
        else:
            self.writer.expire(policy, needed_from, disk)

    def prepare_next(self) -> None:
        """Create the next files ahead of use, if anything was stored since the last call."""
        end = self.writer.store.reads.max_physical_offset
        if end != self._prepared_end:
            self._prepared_end = end
            self.writer.prepare_next()

    def _watch_disk(self) -> None:
        """Refuse messages from now on if the disk is too full, or accept them again."""
        self.writer.watch_disk(disk_use(self.directory))

    def flush(self) -> None:
        """Bring everything to disk, and drop producers that are gone."""
        end = self.writer.store.reads.max_physical_offset
        self._quiet_flushes = self._quiet_flushes + 1 if end == self._flushed_end else 0
        self._flushed_end = end
        if not self.writer.store.is_at_rest:
            self.writer.flush(everything=self._quiet_flushes >= _QUIET_FLUSHES)
        self.writer.rings.forget_closed()

    def rest(self) -> bool:
        """Return whether the timers may leave it alone until its store calls ``on_wake``.

        A shard with new data, or one that failed, needs them.
        """
        return self._quiet_flushes >= _QUIET_FLUSHES and self.writer.rest()

    def tidy(self) -> None:
        """Look at the disk, and drop producers that are gone; called from time to time."""
        self._watch_disk()
        if len(self.writer.rings):
            self.writer.rings.forget_closed()

    def problems(self) -> ShardProblems:
        """Return what is wrong with the shard, which is open: a line by subject."""
        ahead_ms = self.writer.store.last_store_timestamp_ms - self._clock_ms()
        unflushed_ms, has_damage = self.unflushed_ms(), self.scrub.has_damage
        if not has_damage and unflushed_ms < UNFLUSHED_MAX_MS and ahead_ms < AHEAD_MAX_MS:
            return {}  # as in thousands of others
        return problems_of(self.place, unflushed_ms, ahead_ms, self.scrub.state())

    def close(self) -> None:
        """Store the batches in the rings, flush and release the directory, also if that fails."""
        self.scrub.close()
        try:
            self.writer.rings.drain()
        finally:
            self.writer.close()

    def abandon(self) -> None:
        """Release the directory after a failure; the next owner recovers it, as after a crash."""
        self.scrub.close()
        with suppress(Exception):  # the failure is known, and the files are released
            self.writer.close()

    def _take_over(self, rings: Path) -> None:
        """Attach the existing rings, and store their batches before the first call is answered.

        An incomplete ring holds nothing yet: its producer attaches it when it is complete.
        """
        for path in sorted(rings.iterdir()) if rings.is_dir() else ():
            try:
                self.writer.rings.attach_ring(path)
            except FileNotFoundError:
                continue  # its producer removed it just now
            except StoreVersionError as error:
                _LOG.warning("%s/%d does not remove a ring: %s", self._topic, self._queue_id, error)
                if not is_alive(owner_pid(path)):
                    path.unlink(missing_ok=True)
        self.drain()
