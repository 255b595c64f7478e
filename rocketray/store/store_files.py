"""The files of one store directory: opened together, recovered, flushed in the right order.

Invariants
  1. The checkpoint is written after everything that it covers is on disk.
  2. Of no queue are more messages unflushed than the checkpoint on disk says. So recovery knows
     which queue offsets a power failure may have taken, and leaves a gap there (queue_gaps.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rocketray.base.config import StoreConfig
from rocketray.errors import CorruptRecordError
from rocketray.message import PhysicalOffset
from rocketray.store.queues.gaps_file import read_gaps, write_gaps

from .files.checkpoint import (
    Checkpoint,
    ensure_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from .files.failed_disk import has_failed_disk, remove_failed_disk
from .files.file_system import FileSystem, sync_names
from .files.lock import StoreLock
from .files.mapped_file_queue import Repair
from .files.open_mark import was_clean
from .files.store_settings import Salvage, damaged_settings, is_foreign
from .index.key_index import KeyIndex
from .log.commit_log import CommitLog
from .queues.consume_queue import ConsumeQueue
from .queues.consume_queue_ext import BitmapSource
from .queues.queue_gaps import QueueGaps
from .queues.queue_recovery import continue_at
from .queues.queue_table import QueueTable
from .recovery.at_rest import noted_ends, open_at_rest
from .recovery.clean_stop import CleanStop
from .recovery.problem import Problem
from .recovery.recovery import (
    RecoveryReport,
    Trust,
    last_store_timestamp_ms,
    nothing_recovered,
    recover,
    recover_read_only,
    write_past_recovery,
)
from .recovery.scrub_progress import accept_holes
from .recovery.verify import Verification, verify

_LOG = logging.getLogger(__name__)
_CHECKPOINT = "checkpoint"
_UNFLUSHED_LEAST = 1024  # the first gap; it doubles, so the checkpoint is seldom written for it
_DERIVED_FLUSH_MS = 1000  # queues, index and checkpoint follow the log this often, as RocketMQ's


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """The content of a store, and the appends since it was opened. Offsets are bytes.

    ``damaged_chains`` counts chains of the key index that lookups could not follow to their end.
    """

    min_physical_offset: int
    max_physical_offset: int
    flushed_offset: int
    queues: int
    messages: int
    log_files: int
    index_files: int
    keys: int
    damaged_chains: int
    appended_batches: int
    appended_messages: int


def _trust(lock: StoreLock | None, salvage: Salvage, *, is_foreign: bool) -> tuple[Trust, Repair]:
    """Return what recovery trusts, and which files of the log it repairs."""
    trust = Trust.CLEAN_STOP if lock and lock.mark.was_clean else Trust.CHECKPOINT
    salvages = salvage is not Salvage.NOTHING
    if salvages and is_foreign:
        trust = Trust.BROKER
    elif salvages and trust is Trust.CLEAN_STOP:
        trust = Trust.LOG
    if lock is None or trust is Trust.CLEAN_STOP:
        return trust, Repair.NOTHING
    return trust, Repair.ALL if salvages else Repair.SHORT


class StoreFiles:
    """Log, queues and index of one directory."""

    def __init__(
        self,
        directory: Path,
        config: StoreConfig,
        lock: StoreLock | None,
        *,
        clock_ms: Callable[[], int],
        file_system: FileSystem,
        bitmap_source: BitmapSource | None = None,
        adds_units: bool = True,
        salvage: Salvage = Salvage.NOTHING,
    ) -> None:
        """Open the files and find their ends; without *lock* read-only, nothing is changed.

        With *salvage* all of the log is read, and its missing parts count as holes; RocketMQ's
        own rules apply to a directory that RocketMQ wrote.

        Raises:
            CorruptRecordError: a file has a wrong size, or is missing.
            StoreFullError: there is no space for recovered entries or keys; opening again
                continues.
        """
        self.recovery: RecoveryReport | None = None
        self.last_timestamp_ms = 0
        self._directory = directory
        self._checkpoint = directory / _CHECKPOINT
        self._clean_stop = CleanStop(directory, file_system)
        self._is_foreign = is_foreign(directory, file_system)
        self._clock_ms = clock_ms
        self._file_system = file_system
        self._lock = lock
        self.is_at_rest = False
        """Whether the last writer was killed at rest, and nothing was changed by the opening."""
        self._derived_flushed_ms = clock_ms()
        self._settled_end = -1
        """Where the log ended when everything was on disk; -1 if that was never so, or changed."""
        self._checkpointed = Checkpoint()
        self._unflushed_least = min(_UNFLUSHED_LEAST, config.consume_queue_segment_entries)
        self._gaps = self._read_gaps(salvage)
        read_only = lock is None
        trust, repair_log = _trust(lock, salvage, is_foreign=self._is_foreign)
        self.log = CommitLog(
            directory / "commitlog",
            config.commit_log_segment_bytes,
            config.store_host,
            read_only=read_only,
            repair=repair_log,
            is_foreign=self._is_foreign,
            file_system=file_system,
        )
        self.queues = QueueTable(
            directory,
            config,
            read_only=read_only,
            repair=Repair.NOTHING if read_only else Repair.ALL,
            bitmap_source=bitmap_source,
            adds_units=adds_units,
            gaps=self._gaps,
            file_system=file_system,
        )
        self.index = KeyIndex(
            directory / "index",
            config.index_hash_slots,
            config.index_entries,
            read_only=read_only,
            repair=not read_only,
            clock_ms=clock_ms,
            file_system=file_system,
        )
        try:
            if lock is None:
                self._find_ends()
            else:
                self._recover(lock, trust, salvage)
        except BaseException:
            self.close()
            raise

    def _find_ends(self) -> None:
        """Find the ends of all files without changes."""
        checkpoint = read_checkpoint(self._checkpoint, self._file_system)
        clean = was_clean(self._directory, self._file_system)
        recover_read_only(self.log, self.queues, checkpoint, was_clean=clean)
        self.last_timestamp_ms = last_store_timestamp_ms(self.log, self.queues)

    def _recover(self, lock: StoreLock, trust: Trust, salvage: Salvage) -> None:
        """Find the ends of all files, for the writer, and make them agree."""
        checkpoint = self._checkpointed = read_checkpoint(self._checkpoint, self._file_system)
        if salvage is Salvage.NOTHING and self._is_left_at_rest(lock):
            self.is_at_rest = True
            self.recovery = nothing_recovered(self.log)
        else:
            self._begin_to_write(lock, trust, salvage)
            self.recovery = self._make_agree(lock, trust, salvage, checkpoint)
        report = self.recovery
        self.last_timestamp_ms = last_store_timestamp_ms(self.log, self.queues)
        if report.changed_nothing():
            self._settled_end = self.log.max_offset
        elif not report.was_clean:
            # What recovery returns is on disk before a message is taken (invariant 2 of
            # recovery.py).
            self.flush(self.last_timestamp_ms, everything=True)
            if self.log.files.starts and not self._is_foreign:
                write_past_recovery(self._directory, report, self._clock_ms(), self._file_system)
        self._continue_queues(report, was_closed=lock.mark.was_clean)
        if salvage is not Salvage.ALL_BUT_INDEX:
            self.index.forget_before(self.log.min_offset)
        self.remove_forgotten()  # left over from a crash during deletion
        self._clean_stop.remove()
        if not self._is_foreign:
            lock.mark.note(lock.mark.at_rest if self.is_at_rest else None)
        level = logging.DEBUG if report.was_clean else logging.INFO
        _LOG.log(level, "%s: opened: %s", self._directory, report)
        for hole in report.holes:
            _LOG.error(
                "%s: offsets %d to %d: %s", self._directory, hole.start, hole.end, hole.reason
            )

    def _is_left_at_rest(self, lock: StoreLock) -> bool:
        """Return whether the store was killed at rest; then the ends of all files are set."""
        noted = lock.mark.at_rest
        return noted is not None and open_at_rest(
            noted, self.log, self.queues, self.index, self._checkpointed
        )

    def _begin_to_write(self, lock: StoreLock, trust: Trust, salvage: Salvage) -> None:
        """Check what must not be changed, then mark the store open, with durable names."""
        if salvage is Salvage.NOTHING:
            self.log.check_places()
        if trust is Trust.CLEAN_STOP:
            self._clean_stop.check_log(self.log)
        lock.mark.begin()
        # A clean stop has synced all names.
        if not (lock.mark.was_clean and self._clean_stop.is_there()):
            sync_names(self._file_system, self._directory, only_new=lock.mark.has_durable_names)
        ensure_checkpoint(self._checkpoint, self._file_system)

    def _make_agree(
        self, lock: StoreLock, trust: Trust, salvage: Salvage, checkpoint: Checkpoint
    ) -> RecoveryReport:
        """Recover the store, as far as *trust* asks for it, and more if it has changed."""
        make_agree = partial(
            recover,
            self.log,
            self.queues,
            self.index,
            checkpoint,
            was_closed=lock.mark.was_clean,
            clock_ms=self._clock_ms,
        )
        # Before the recovery, which drops the checksums where it changes entries.
        changed = [] if self._is_foreign else self._clean_stop.changed_files(self.queues)
        difference = f"the content of {', '.join(changed)}" if changed else None
        trust = Trust.LOG if changed else trust
        report = make_agree(trust=trust, salvage=salvage)
        if report.was_clean:
            difference = self._clean_stop.difference(self.log, self.queues, self.index, checkpoint)
            if difference is not None:
                report = make_agree(trust=Trust.LOG)
        if difference is not None:
            cause = f"it changed since it was closed: {difference}"
            _LOG.warning("%s: %s", self._directory, cause)
            report = replace(report, cause=cause)
        return report

    def note_repair(self) -> None:
        """Forget what was known of a bad disk and of damage: the store was salvaged."""
        remove_failed_disk(self._file_system, self._directory)
        if self.recovery is not None and not self._is_foreign:
            accept_holes(self._file_system, self._directory, self.recovery.holes)

    def _read_gaps(self, salvage: Salvage) -> dict[tuple[str, int], QueueGaps]:
        """Return the known gaps; a repair finds those of a damaged file again."""
        try:
            return read_gaps(self._directory, self._file_system)
        except CorruptRecordError as error:
            if salvage is Salvage.NOTHING:
                raise
            _LOG.warning("%s", error)
            return {}

    def _continue_queues(self, report: RecoveryReport, *, was_closed: bool) -> None:
        """Let no queue offset be given twice: see queue_gaps.py."""
        if self._is_foreign:
            return
        before, boot = self._checkpointed, self._file_system.boot()
        may_lack = not report.was_clean and (
            # After a clean stop only what is missing is lost. Otherwise all is there that was
            # written in the same boot, as the system's cache survives a killed process.
            (report.queue_entries_cut if was_closed else not boot or boot != before.boot)
            or any(hole.end >= report.end_offset for hole in report.holes)
            or has_failed_disk(self._file_system, self._directory)
        )
        for name, queue in self.queues.items():
            end = queue.max_offset
            if may_lack:
                end += (before.unflushed_max or queue.unflushed_max) + report.queue_entries_cut
            self._continue_at(queue, name, max(end, queue.lost_end))
        self._save_gaps()
        is_known = (before.unflushed_max, before.boot) == (self._unflushed_least, boot)
        if not is_known and not self.is_at_rest:
            self._write_checkpoint(
                replace(self._checkpointed, unflushed_max=self._unflushed_least, boot=boot)
            )

    def _continue_at(self, queue: ConsumeQueue, name: tuple[str, int], end: int) -> None:
        if end > queue.max_offset:
            _LOG.warning(
                "%s: messages of %s/%d may have been lost; the next one gets queue offset %d",
                self._directory,
                *name,
                end,
            )
        continue_at(queue, end)
        queue.forget_before(self.log.min_offset)
        queue.logged_offset = end

    def _save_gaps(self) -> None:
        gaps = {name: queue.gaps for name, queue in self.queues.items() if queue.gaps}
        if gaps != self._gaps:
            write_gaps(self._directory, gaps, self._file_system)
            self._gaps = gaps

    def leave_gap(self, queue: ConsumeQueue, name: tuple[str, int], end: int) -> None:
        """Continue *queue* at *end*, if that is beyond its end."""
        if end > queue.max_offset:
            self._settled_end = -1
            self._continue_at(queue, name, end)
            self._save_gaps()

    def verify(self) -> Verification:
        """Check everything; see verify.py."""
        checkpoint = read_checkpoint(self._checkpoint, self._file_system)
        found = verify(self.log, self.queues, self.index, checkpoint)
        if (settings := damaged_settings(self._directory, self._file_system)) is None:
            return found
        what = "lost or damaged; its copy store.json.bak is used, and the next start repairs it"
        return replace(found, problems=(Problem(str(settings), 0, what), *found.problems))

    def stop(self) -> None:
        """Write down the ends of all files, already flushed, for the next opening.

        Not in a directory of RocketMQ's, where no program would read it.
        """
        if self._is_foreign:
            return
        self.log.files.sync_sizes()
        for queue in self.queues.all():
            queue.files.sync_sizes()
            if queue.ext is not None:
                queue.ext.files.sync_sizes()
        checkpoint = read_checkpoint(self._checkpoint, self._file_system)
        self._clean_stop.write(self.log, self.queues, self.index, checkpoint)

    def flush(self, last_timestamp_ms: int, *, everything: bool) -> PhysicalOffset:
        """Sync the log to disk, and the rest if it is due or *everything* is requested.

        *last_timestamp_ms* is the store time of the last batch, read before this call: all
        batches of an earlier time are whole in log, queues and index.
        """
        # Before the flush: the records of all messages below these ends are in the log by now, and
        # so on disk after it.
        ends = [(queue, queue.max_offset) for queue in self.queues.all()]
        flushed = self.log.flush()
        for queue, end in ends:
            queue.logged_offset = end
        now_ms = self._clock_ms()
        # Below 0 the clock was set back: then now, and not after as long a time as it was set back.
        if everything or not 0 <= now_ms - self._derived_flushed_ms < _DERIVED_FLUSH_MS:
            self._derived_flushed_ms = now_ms
            for queue in self.queues.all():
                queue.flush()
            self.index.flush()
            time_ms = last_timestamp_ms
            checkpoint = replace(
                self._checkpointed,
                log_timestamp_ms=time_ms,
                queue_timestamp_ms=time_ms,
                index_timestamp_ms=time_ms,
            )
            if checkpoint != self._checkpointed:
                self._write_checkpoint(checkpoint)
            self._settled_end = flushed
        return flushed

    def is_settled(self) -> bool:
        """Return whether everything is on disk, queues, index and checkpoint too."""
        return self._settled_end == self.log.max_offset == self.log.flushed_offset

    def note_at_rest(self, *, is_at_rest: bool) -> bool:
        """Note whether the store is at rest, for an opening after a kill; return what was noted.

        Stores of RocketMQ's, and those of hundreds of queues, are never noted as at rest.

        Raises:
            OSError: it cannot be noted. StoreError: no more files may be open.
        """
        if self._lock is None or self._is_foreign:
            return False
        files = self.log, self.queues, self.index, self._checkpointed
        return self._lock.mark.note(noted_ends(*files) if is_at_rest else None) and is_at_rest

    def begin_units(self, source: BitmapSource) -> None:
        self._settled_end = -1
        self.queues.begin_units(source)

    def unflushed_room(self, queue: ConsumeQueue) -> int:
        """Return how many messages *queue* may take before :meth:`make_unflushed_room`."""
        return self._checkpointed.unflushed_max - (queue.max_offset - queue.logged_offset)

    def make_unflushed_room(self, queue: ConsumeQueue, count: int, last_timestamp_ms: int) -> None:
        """Have room for *count* messages more of *queue*, by a flush if it has very many.

        No other flush may run. *last_timestamp_ms* is as for :meth:`flush`.
        """
        if queue.max_offset + count - queue.logged_offset > queue.unflushed_max:
            self.flush(last_timestamp_ms, everything=False)
        if count > self.unflushed_room(queue):
            needed = queue.max_offset + count - queue.logged_offset
            # A batch larger than the limit is allowed by itself, after the flush above.
            most = max(min(2 * needed, queue.unflushed_max), needed)
            self._write_checkpoint(replace(self._checkpointed, unflushed_max=most))

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        write_checkpoint(self._checkpoint, checkpoint, self._file_system)
        self._checkpointed = checkpoint

    def forget_before(self, physical_offset: int) -> None:
        """Begin the log with the file of *physical_offset*; queues and index follow.

        Nothing is removed from disk before :meth:`remove_forgotten`.
        """
        self.log.files.forget_before(physical_offset)
        for queue in self.queues.all():
            queue.forget_before(self.log.min_offset)
        self.index.forget_before(self.log.min_offset)

    def remove_forgotten(self) -> None:
        """Remove the forgotten files, those of the log first; may run beside the writer.

        A crash in the middle leaves files of queues and index that point to nothing. They are
        removed when the store is opened.
        """
        self.log.files.remove_forgotten()
        for queue in self.queues.all():
            queue.remove_forgotten()
        self.index.remove_forgotten()

    def statistics(self, appended_batches: int, appended_messages: int) -> StoreStatistics:
        """Return the current counts and offsets; the caller knows what it appended."""
        queues = self.queues.all()
        return StoreStatistics(
            min_physical_offset=self.log.min_offset,
            max_physical_offset=self.log.max_offset,
            flushed_offset=self.log.flushed_offset,
            queues=sum(queue.max_offset > 0 for queue in queues),
            messages=sum(queue.gaps.count(queue.min_offset, queue.max_offset) for queue in queues),
            log_files=len(self.log.files.starts),
            index_files=len(self.index.files),
            keys=self.index.entry_count(),
            damaged_chains=sum(len(file.damaged_slots) for file in self.index.files),
            appended_batches=appended_batches,
            appended_messages=appended_messages,
        )

    def close(self) -> None:
        """Unmap everything; unflushed data is left to the operating system."""
        self.log.files.close()
        for queue in self.queues.all():
            queue.close()
        self.index.close()
