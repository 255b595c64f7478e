"""A store directory: a commit log, consume queues and an index, opened by one writer.

Layout, as RocketMQ's: ``commitlog/`` ``consumequeue/<topic>/<queueId>/`` ``index/`` ``checkpoint``
``abort`` ``lock``, and our ``store.json``. Any number of topics and queues; a shard has one.

Invariants
  1. A batch is stored whole or not at all: room in log, queue and index is made before the first
     byte is written, and the log has all of it before the queue has an entry.
  2. Store times never decrease, whatever the clock does, so that a time is found by bisection.
  3. Queues and index can be rebuilt from the log, and are, after a crash (recovery.py).

Threads: one writer. ``flush`` and ``prepare_next`` may run in other threads beside it. Reads may
run beside the writer too, and see a message when ``append`` has returned, or a little before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Self

from rocketray.base.config import StoreConfig
from rocketray.base.quantity import counted
from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.errors import (
    ConfigError,
    CorruptRecordError,
    StoreClosedError,
    StoreError,
    StoreFullError,
)
from rocketray.message import Message, PhysicalOffset, QueueOffset
from rocketray.store.batches.batch_form import RecordOptions

from .age_clock import AgeClock
from .append_results import AppendResult, PutResult, put_results
from .append_window import AppendWindow, open_window
from .batches.batch_form import EncodedBatch, store_times
from .batches.encoded_batch import encode_messages
from .expiry import Expiry
from .files.failed_disk import check_disk, note_failed_disk
from .files.file_system import SYSTEM_FILES, FileSystem, make_directory
from .files.lock import StoreLock
from .files.mapped_file import FULL_ERRORS, no_room_is_full
from .files.store_settings import Salvage, allow_units, settle_config
from .formats.sys_flag import PREPARED, ROLLBACK
from .log.log_blocks import entry_codes
from .queues.consume_queue import ConsumeQueue
from .queues.consume_queue_ext import BitmapSource
from .recovery.verify import Verification
from .retention import DiskUse, ExpiredFile, RetentionPolicy
from .store_files import StoreFiles, StoreStatistics
from .store_reads import StoreReads

_LOG = logging.getLogger(__name__)


class MessageStore:
    """The only way to write a store directory, and to read it in the same process: ``reads``."""

    def __init__(
        self,
        directory: Path,
        config: StoreConfig | None = None,
        *,
        read_only: bool = False,
        salvage: Salvage = Salvage.NOTHING,
        clock_ms: Callable[[], int],
        file_system: FileSystem = SYSTEM_FILES,
        bitmap_source: BitmapSource | None = None,
        adds_units: bool = True,
    ) -> None:
        """Open *directory*, or create it; after a crash it is recovered first.

        *bitmap_source* makes the filter bitmaps of a store with ``consume_queue_ext``; without
        *adds_units* no entry gets a unit before :meth:`begin_units`.

        To *salvage* it, all of the log is read, queues and index are made to agree with it, and
        missing or truncated files are holes. This also works for RocketMQ's directories, with
        *config*.

        Raises:
            StoreLockedError: another process has it open for writing.
            ConfigError: *config* differs from the directory's settings.
            StoreVersionError: a newer rocketray created the directory, or an older one; see
                upgrade.py.
            CorruptRecordError: a file has a wrong size, or is missing.
            StoreError: its disk failed, and it was not repaired since (failed_disk.py).
        """
        self._read_only = read_only
        self._file_system = file_system
        self._damage: str | None = None
        self._batches = self._messages = 0
        # Order: expiry, the caller's guard, flush. The writer, which has the guard, takes the flush
        # lock when unflushed messages are too many, and only tries the expiry lock.
        self._flush_lock = threading.Lock()
        self._expiry_lock = threading.Lock()
        self._lock: StoreLock | None = None
        if not read_only:
            make_directory(file_system, directory)
            if salvage is Salvage.NOTHING:
                check_disk(file_system, directory)
            self._lock = StoreLock(directory, file_system)
        try:
            self.config = settle_config(
                directory, config, read_only=read_only, salvage=salvage, file_system=file_system
            )
            files = StoreFiles(
                directory,
                self.config,
                self._lock,
                clock_ms=clock_ms,
                file_system=file_system,
                bitmap_source=bitmap_source,
                adds_units=adds_units,
                salvage=salvage,
            )
        except BaseException:
            if self._lock is not None:
                self._lock.release(clean=False)
            raise
        self.directory = directory
        self.reads = StoreReads(files, clock_ms=clock_ms, check_open=self._check_open)
        self.recovery = files.recovery
        """The report of the recovery at opening; None for a store that is open read-only."""
        if salvage is not Salvage.NOTHING:
            files.note_repair()
        self._files = files
        self._log, self._queues, self._index = files.log, files.queues, files.index
        self._clock_ms = clock_ms
        self._closed = False
        self.is_at_rest = files.is_at_rest
        """Whether the next opening is told that nothing was changed since :meth:`rest`."""
        self.on_wake: Callable[[], None] = lambda: None
        """Called before the first change of a store at rest."""
        self._expiry = Expiry(files, str(directory), AgeClock.of(clock_ms))
        self._last_timestamp_ms = files.last_timestamp_ms
        self._window: AppendWindow | None = None

    # Writing

    def put(self, messages: Sequence[Message], queue_id: int) -> list[PutResult]:
        """Store messages of one topic, all or none of them, in one file of the log.

        Raises:
            As :meth:`append`.
        """
        if not messages:
            return []
        batch = encode_messages(
            messages,
            born_host=self.config.store_host,
            clock_ms=self._clock_ms,
            options=RecordOptions(
                store_ipv6=":" in self.config.store_host[0],
                properties_crc=self.config.append_properties_crc,
            ),
        )
        done = self.append(messages[0].topic, queue_id, batch)
        return put_results(done, queue_id, batch.starts())

    def append(self, topic: str, queue_id: int, batch: EncodedBatch) -> AppendResult:
        """Store a batch of *topic*; on return it survives the end of this process.

        Messages of prepared and rolled back transactions get the queue offset 0 and are in no
        queue, the latter also in no index; they are only in the log.

        If it raises, nothing was stored.

        Raises:
            MessageTooLargeError: the batch is larger than a file of the log.
            StoreFullError: there is no space.
            CorruptRecordError: the batch's records do not agree with its sizes.
            InvalidMessageError: its own store times decrease.
        """
        self._check_writable()
        count = len(batch)
        if not count or count != len(batch.tags_codes):
            raise ConfigError(
                f"topic {topic!r}: invalid batch: {counted(count, 'record')} and "
                f"{counted(len(batch.tags_codes), 'tags code')}; give at least one of each"
            )
        queue = None if batch.transaction & PREPARED else self._queues.get(topic, queue_id)
        keyed = batch.key_records[: 0 if batch.transaction == ROLLBACK else None]
        key_offsets = batch.starts()[keyed]
        times = store_times(batch, self._last_timestamp_ms, self._clock_ms)
        bitmaps = None
        if queue is not None and queue.adds_units:
            bitmaps = self._queues.bitmaps(topic, batch.records, *batch.property_spans())
        codes = batch.tags_codes
        if topic == SCHEDULE_TOPIC:
            codes = entry_codes(codes, batch.records, *batch.property_spans(), times)
        self._window = None
        with self._making_files():
            self._log.reserve(len(batch.records))
            if queue is not None:
                self._make_unflushed_room(queue, count)
                queue.reserve(count, 0 if bitmaps is None else bitmaps.shape[1])
            if len(key_offsets):
                self._index.reserve(len(key_offsets))
        first_ms = int(times[0])
        first_queue_offset = 0 if queue is None else queue.max_offset
        try:
            first = self._log.append(batch, queue_id, first_queue_offset, first_ms)
            if queue is not None:
                queue.append(batch.sizes, codes, first, times, bitmaps)
            if len(key_offsets):
                self._index.put(batch.key_hashes, key_offsets + first, times[keyed])
        # The kernel refused the batch, and has left no byte of it in the log.
        except CorruptRecordError:
            raise
        except BaseException:
            self._damage = "an append was interrupted between log and queue"
            raise
        self._batches += 1
        self._messages += count
        last_ms = self._last_timestamp_ms = int(times[-1])  # after writing: see flush
        return AppendResult(QueueOffset(first_queue_offset), first, count, last_ms)

    def append_through_window(
        self, topic: str, queue_id: int, write: Callable[[AppendWindow, int], int]
    ) -> int:
        """Let *write*, a kernel, append batches to a queue; return its result.

        It gets the window on the ends of the current files, whose cursor it advances, and the store
        time. It is not called, and 0 returned, when :meth:`append` has to create a file first, and
        for a topic whose entries hold data that the window's kernel cannot write.
        """
        self._check_writable()
        if topic == SCHEDULE_TOPIC:
            return 0
        queue = self._queues.find(topic, queue_id)
        window = self._window
        if window is None or window.queue is not queue:
            window = self._window = None
            if queue is not None:
                room = self._files.unflushed_room(queue)
                window = self._window = open_window(self._log, queue, self._index, room)
        if window is None:
            return 0
        now_ms = max(self._clock_ms(), self._last_timestamp_ms)
        try:
            done = write(window, now_ms)
            window.add_units(partial(self._queues.bitmaps, topic), now_ms)
            batches, messages = window.advance_ends()
        except BaseException:
            self._damage = "an append was interrupted between log and queue"
            raise
        if messages:
            self._last_timestamp_ms = now_ms  # after writing, as above
        self._batches += batches
        self._messages += messages
        return done

    def skip_to(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Give no queue offset below *queue_offset*, which readers may know as the queue's end.

        Raises:
            StoreFullError: there is no space for the file of the next entry.
        """
        self._check_writer()
        queue = self._queues.get(topic, queue_id)
        if queue_offset > queue.max_offset:
            self._wake()
            self._window = None
            self._files.leave_gap(queue, (topic, queue_id), queue_offset)

    def begin_units(self, source: BitmapSource) -> None:
        """Start to give new queue entries a ConsumeQueueExt unit each, with a bitmap of *source*.

        The directory has ``consume_queue_ext`` from now on.
        """
        self._check_writable()
        if not self.config.consume_queue_ext:
            self.config = allow_units(self.directory, self.config, self._file_system)
        self._files.begin_units(source)
        self._window = None

    def end_units(self) -> None:
        """Stop giving new queue entries units."""
        self._check_writable()
        self._files.queues.end_units()
        self._window = None

    def prepare_next(self) -> None:
        """Create the files that will be needed next; for a thread beside the writer.

        Called often enough, no append waits for a new file. Raises :class:`StoreFullError`.
        """
        self._check_open()
        self._check_sound()
        with self._making_files():
            self._log.files.prepare_next(self._log.max_offset)
            for queue in self._queues.all():
                queue.prepare_next()

    def flush(self, *, everything: bool = False) -> PhysicalOffset:
        """Sync the log to disk, and queues, index and checkpoint once a second, or now.

        Returns the offset below which every message survives power loss. May be called from any
        thread, beside the writer; it releases the GIL while it waits.
        """
        if self._read_only:
            return self._log.flushed_offset
        with self._flush_lock:
            self._check_open()
            self._check_sound()
            return self._flush(everything=everything)

    def expire(
        self,
        policy: RetentionPolicy,
        disk: DiskUse,
        *,
        needed: Mapping[tuple[str, int], int] | None = None,
        guard: AbstractContextManager[object] | None = None,
        announce: Callable[[], None] = lambda: None,
    ) -> list[ExpiredFile]:
        """Remove the files of the log that *policy* expires, and the files that point only to them.

        *needed* maps queues to the first offset that a reader still needs. If other threads append
        or read, they do it under *guard*; *announce* is called when the minimum has moved and
        before the files are removed. Raises :class:`StoreError` when a file cannot be removed.
        """
        with self._expiry_lock:
            self._check_writer()
            return self._expiry.run(
                policy,
                disk=disk,
                needed=needed or {},
                guard=guard or nullcontext(),
                before=self._before_expiry,
                announce=announce,
            )

    def rest(self) -> bool:
        """Tell the next opening that nothing is being written, if everything is on disk.

        So it has nothing to recover if the process is killed. For the writer's thread. Returns
        whether the store is at rest; its next change begins with ``on_wake``.
        """
        if self.is_at_rest or self._damage is not None or not self._files.is_settled():
            return self.is_at_rest
        # A round of retention that holds it may be waiting for the guard, which this thread has.
        if not self._expiry_lock.acquire(blocking=False):
            return False
        try:
            self._check_open()
            with self._making_files():
                self.is_at_rest = self._files.note_at_rest(is_at_rest=True)
        except StoreError as error:
            # Without the note a kill costs the next opening a recovery, and nothing else.
            _LOG.warning("%s: that it is at rest cannot be noted: %s", self.directory, error)
        finally:
            self._expiry_lock.release()
        return self.is_at_rest

    def close(self) -> None:
        """Sync everything to disk and release the directory; repeated calls are allowed.

        The writer's threads have ended before. When flushing fails, the next opening recovers.
        """
        with self._expiry_lock, self._flush_lock:
            if self._closed:
                return
            clean = False
            try:
                if not self._read_only and self._damage is None:
                    self._flush(everything=True, stop=True)
                clean = self._damage is None
            finally:
                self._closed = True
                self._window = None
                self._files.close()
                if self._lock is not None:
                    self._lock.release(clean=clean)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def last_store_timestamp_ms(self) -> int:
        """The store time of the newest message; no later one has an earlier time."""
        return self._last_timestamp_ms

    @property
    def is_sound(self) -> bool:
        """Whether no error occurred that only reopening repairs."""
        return self._damage is None

    def verify(self) -> Verification:
        """Check every record, queue entry and key; see verify.py. Nothing is changed."""
        self._check_open()
        return self._files.verify()

    def statistics(self) -> StoreStatistics:
        self._check_open()
        return self._files.statistics(self._batches, self._messages)

    def _flush(self, *, everything: bool, stop: bool = False) -> PhysicalOffset:
        with self._syncing():
            flushed = self._files.flush(self._last_timestamp_ms, everything=everything)
            if stop:
                self._files.stop()
        return flushed

    def _before_expiry(self) -> None:
        self._wake()
        self.flush(everything=True)

    def _wake(self) -> None:
        """Note that the store is not at rest any more, before it is changed."""
        if self.is_at_rest:
            self.on_wake()
            with self._making_files():
                self._files.note_at_rest(is_at_rest=False)
            self.is_at_rest = False

    def _make_unflushed_room(self, queue: ConsumeQueue, count: int) -> None:
        if count > self._files.unflushed_room(queue):
            with self._flush_lock, self._syncing():
                self._check_sound()
                self._files.make_unflushed_room(queue, count, self._last_timestamp_ms)

    @contextmanager
    def _syncing(self) -> Iterator[None]:
        """Make the store unsound if a sync fails: the system drops data it could not write."""
        try:
            yield
        except StoreFullError as error:
            raise self._failed("flushing", error) from error
        except OSError as error:
            failure = self._failed("flushing", error)
            # After any other error a person has to look at the disk before the store is opened
            # again.
            if error.errno not in FULL_ERRORS:
                note_failed_disk(self._file_system, self.directory, self._what(), self._clock_ms())
            raise failure from error

    @contextmanager
    def _making_files(self) -> Iterator[None]:
        try:
            with no_room_is_full(self.directory):
                yield
        except OSError as error:
            raise self._failed("making a file", error) from error

    def _failed(self, what: str, error: Exception) -> StoreError:
        self._damage = f"{what} failed: {error}"
        if self.is_at_rest:  # then only its owner's timers can find that it failed
            self.is_at_rest = False
            self.on_wake()
        return StoreError(
            f"{self.directory}: {self._what()}: check the disk, then open the store again"
        )

    def _what(self) -> str:
        """Return what failed, and what that means."""
        offset = self._log.flushed_offset
        return f"{self._damage}; messages from offset {offset} on may not be on disk"

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(f"{self.directory}: the store is closed")

    def _check_writable(self) -> None:
        self._check_writer()
        if self.is_at_rest:
            self._wake()

    def _check_writer(self) -> None:
        self._check_open()
        if self._read_only:
            raise StoreError(f"{self.directory} is open read-only; open it for writing to append")
        self._check_sound()

    def _check_sound(self) -> None:
        if self._damage is not None:
            raise StoreError(f"{self.directory}: {self._damage}; close the store and open it again")
