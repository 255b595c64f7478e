"""Opening of a store: find the end of the log, and make queues and index agree with it.

The log is the source of truth.
- After a clean stop the queues tell where it ends, and ``stopped.json`` whether anything was lost
  since.
- After a crash (the ``abort`` file is there) everything that the checkpoint does not cover is
  replayed: records are verified one by one, and their queue entries and keys are put again.
- To *salvage* a store all of its log is read this way, and the index is compared with it.

A record that is not whole has one of two causes.
- The power failed while it was written. Then neither it nor anything behind it was acknowledged for
  ``disk``. The log is cut there, and the bytes behind are kept aside.
- It was whole and was damaged later: this is so if whole records follow that the checkpoint, or a
  clean stop, covers. Then nothing is cut. The place is a hole, reported and skipped.

RocketMQ does not distinguish the two: from the file on in which it begins to read, it cuts at the
first bad record. A directory that RocketMQ wrote is recovered this way.

Invariants
  1. No record that the recovery's trust covers is lost unless it is damaged itself; no
     damaged record is ever returned; nothing behind a cut was acknowledged for ``disk``.
  2. Recovery may be interrupted and repeated: the result is the same. What it returns is written
     to disk by its flush, also if an earlier process was told that this failed.
  3. A queue's entries follow each other, but for its known gaps; if the replayed part of the log
     cannot ensure this, all of the log is read.

``recovered.json`` has the report of the last recovery:

    {"time_ms": 17…, "cause": "…", "start_offset": 0, "end_offset": 4711, …, "holes": […]}

It is for people: no code depends on it, and a store without it, or with a damaged one, is valid. So
it is not synced. An opening that had nothing to recover leaves it unchanged: after a clean stop,
at rest, or without a log. A directory of RocketMQ's gets none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from pathlib import Path

import orjson

from rocketray.base.file_form import FileForm
from rocketray.base.json_fields import read_value
from rocketray.errors import StoreError
from rocketray.store.files.checkpoint import Checkpoint
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem, replace_file
from rocketray.store.files.mapped_file_queue import rewrite_files
from rocketray.store.files.store_settings import Salvage
from rocketray.store.index.key_index import KeyIndex
from rocketray.store.log.commit_log import CommitLog
from rocketray.store.log.log_walk import next_record, walk
from rocketray.store.queues.queue_recovery import (
    clear_tail,
    find_begin,
    find_end,
    forget_checksums,
    last_before,
    rewrite_from,
)
from rocketray.store.queues.queue_table import QueueTable

from .replay import Hole, QueueGapError, Replay, put_keys
from .verify import index_agrees

_NO_LIMIT = 1 << 62  # above all valid offsets and store times
_REPORT = "recovered.json"
_FORM = FileForm(_REPORT)
_REPORT_MAX_BYTES = 1 << 20
_HOLES_MAX = 1000  # the first ones; the log has a line for each
_LOG = logging.getLogger(__name__)


class Trust(Enum):
    """The evidence that an opening trusts."""

    CLEAN_STOP = "everything: the last writer closed the store"
    CHECKPOINT = "the part that the checkpoint covers"
    LOG = "only that the log was once complete; all of it is read"
    BROKER = "nothing more than RocketMQ; all of the log is read"


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The findings and actions of a store's opening. Offsets and sizes are bytes of the log.

    ``cause`` says why the log was read, in words; it is empty after a clean stop.
    ``queue_entries_cut`` counts entries of lost records: messages that were acknowledged for
    ``memory`` at most. ``files_repaired`` were short or missing and are extended with zeros now.
    """

    was_clean: bool
    cause: str
    start_offset: int
    end_offset: int
    files_read: int
    records_read: int
    bytes_kept_aside: int
    queue_entries_put: int
    queue_entries_cut: int
    keys_put: int
    files_repaired: int
    holes: tuple[Hole, ...]
    elapsed_ms: int

    def changed_nothing(self) -> bool:
        """Return whether log, queues and index are as the last writer left them, all on disk."""
        return self.was_clean and not (self.queue_entries_put or self.keys_put)


_NUMBERS = [
    field.name
    for field in fields(RecoveryReport)
    if field.name not in {"holes", "was_clean", "cause"}
]


def nothing_recovered(log: CommitLog) -> RecoveryReport:
    """Return the report of an opening that read and changed nothing."""
    end = int(log.max_offset)
    numbers = dict.fromkeys(_NUMBERS, 0) | {"start_offset": end, "end_offset": end}
    return RecoveryReport(was_clean=True, cause="", holes=(), **numbers)


def recover(
    log: CommitLog,
    queues: QueueTable,
    index: KeyIndex,
    checkpoint: Checkpoint,
    *,
    trust: Trust,
    was_closed: bool = True,
    salvage: Salvage = Salvage.NOTHING,
    clock_ms: Callable[[], int],
) -> RecoveryReport:
    """Make log, queues and index agree and set their ends. The caller is the writer.

    *was_closed* says whether the last writer closed the store.

    Raises:
        StoreFullError: there is no space for entries or keys; opening again continues.
    """
    began_ms = clock_ms()
    trusting = trust is Trust.CLEAN_STOP and salvage is Salvage.NOTHING
    replay = _after_clean_stop(log, queues, index) if trusting else None
    was_clean = replay is not None
    kept = cut = 0
    if replay is not None:
        log.trust_end(replay.end)
    else:
        for queue in queues.all():
            # The replay may put entries again below the ends that the sums cover.
            forget_checksums(queue)
        if trust is Trust.CHECKPOINT and salvage is Salvage.NOTHING:
            replay = _replay_from_checkpoint(log, queues, index, checkpoint)
        else:
            kept_index = None if salvage is Salvage.ALL_BUT_INDEX else index
            replay = _replay_all(log, queues, kept_index, checkpoint, trust, was_closed=was_closed)
        # Only what is before the replayed part counts as flushed: the caller's flush syncs the
        # rest.
        kept = log.cut(replay.end, flushed=replay.start)
        _rewrite(log, queues, replay)
    for queue in queues.all():
        # A queue whose last messages a power failure took ends behind the gap that they left.
        queue.max_offset = queue.gaps.after(queue.max_offset)
        find_begin(queue, log.min_offset)
        if not was_clean:
            cut += clear_tail(queue)
    if trust is not Trust.BROKER:
        _check_end(replay, checkpoint)
    return RecoveryReport(
        was_clean=was_clean,
        cause="" if was_clean else _cause(trust, salvage),
        start_offset=replay.start,
        end_offset=replay.end,
        files_read=sum(replay.start < at + log.files.segment_bytes for at in log.files.starts),
        records_read=replay.records,
        bytes_kept_aside=kept,
        queue_entries_put=replay.entries,
        queue_entries_cut=cut,
        keys_put=replay.keys,
        files_repaired=len(log.files.repaired),
        holes=tuple(sorted(replay.holes, key=lambda hole: hole.start)),
        elapsed_ms=clock_ms() - began_ms,
    )


def _rewrite(log: CommitLog, queues: QueueTable, replay: Replay) -> None:
    """Have the next flush write all that no checkpoint covers.

    It was read from memory: the system may have failed to write it, and then takes it for written.
    An index file that may not be on disk is rebuilt anyway.
    """
    if replay.unsure_from is not None:
        rewrite_files(log.files, replay.unsure_from, replay.end)
    for queue in queues.all():
        if (put_from := replay.put_from.get(id(queue))) is not None:
            rewrite_from(queue, put_from)


def _cause(trust: Trust, salvage: Salvage) -> str:
    if salvage is not Salvage.NOTHING:
        return "a repair was requested"
    if trust is Trust.CHECKPOINT:
        return "the last writer did not close the store"
    return "it changed since it was closed: a queue's last entry has no record"


def recover_read_only(
    log: CommitLog, queues: QueueTable, checkpoint: Checkpoint, *, was_clean: bool
) -> None:
    """Find the ends of log and queues without any change on disk."""
    start = _clean_start(log, queues) if was_clean else None
    # A closed store was whole, so what is missing in it is a hole; after a crash it may never have
    # been written.
    vouched_until_ms = _NO_LIMIT if was_clean else checkpoint.log_timestamp_ms
    at: int | None = _crash_start(log, checkpoint) if start is None else start
    while at is not None:
        end = at
        for offset, record, _ in walk(log.files, at, verify=True):
            end = offset + record.size
        following = next_record(log.files, end)
        at = following[0] if following and following[1] < vouched_until_ms else None
    log.trust_end(end)
    for queue in queues.all():
        queue.max_offset = find_end(queue, end)
        find_begin(queue, log.min_offset)


def last_store_timestamp_ms(log: CommitLog, queues: QueueTable) -> int:
    """Return the newest store time of a queue's last message; 0 in an empty store."""
    entries = (last_before(queue, queue.max_offset) for queue in queues.all())
    times = (log.store_timestamp_ms(each.physical_offset, each.size) for each in entries if each)
    return max((time for time in times if time is not None), default=0)


def _clean_start(log: CommitLog, queues: QueueTable) -> int | None:
    """Return the end of the last record in a queue; None when a queue's end is not a record."""
    start = int(log.min_offset)
    for queue in queues.all():
        queue.max_offset = find_end(queue, _NO_LIMIT)
        entry = last_before(queue, queue.max_offset)
        if entry is None or entry.physical_offset < log.min_offset:
            continue
        if log.store_timestamp_ms(entry.physical_offset, entry.size) is None:
            return None
        start = max(start, entry.physical_offset + entry.size)
    return start


def _crash_start(log: CommitLog, checkpoint: Checkpoint) -> int:
    """Return the newest file whose first record is old enough to be covered by the checkpoint."""
    trusted_until = checkpoint.trusted_until_ms()
    for start in reversed(log.files.starts):
        for _, found, _ in walk(log.files, start, verify=True):
            # The first record of each file, and not one with the time 0, as in recoverAbnormally.
            if 0 < found.store_timestamp_ms <= trusted_until:
                return start
            break
    return log.min_offset


def _after_clean_stop(log: CommitLog, queues: QueueTable, index: KeyIndex) -> Replay | None:
    """Replay behind the last record in a queue; return None when it was no clean stop."""
    start = _clean_start(log, queues)
    if start is None:
        return None
    # Records of transactions are in no queue, so the log may end behind the last entry.
    replay = Replay(log, queues, index, keys_after=index.position(), vouched_until_ms=_NO_LIMIT)
    try:
        replay.run(start)
    except QueueGapError:
        return None
    return replay


def _replay_from_checkpoint(
    log: CommitLog, queues: QueueTable, index: KeyIndex, checkpoint: Checkpoint
) -> Replay:
    index.keep_trusted(checkpoint.index_timestamp_ms)
    after = index.position()
    # The index may end before the checkpoint, in a file that is not trusted: its keys are put again
    # from there.
    segment = after[0] - after[0] % log.files.segment_bytes
    start = max(min(_crash_start(log, checkpoint), segment), log.min_offset)
    vouched_until_ms = checkpoint.log_timestamp_ms
    replay = Replay(log, queues, index, keys_after=after, vouched_until_ms=vouched_until_ms)
    try:
        return _replay_from(start, replay, queues)
    except QueueGapError:
        # The checkpoint covers entries that are not there: no part of the queues is trusted.
        return _replay_all(log, queues, index, checkpoint, Trust.CHECKPOINT, was_closed=False)


def _replay_all(
    log: CommitLog,
    queues: QueueTable,
    index: KeyIndex | None,
    checkpoint: Checkpoint,
    trust: Trust,
    *,
    was_closed: bool,
) -> Replay:
    """Replay the whole log; an index that agrees with it stays, any other is rebuilt."""
    vouched_until_ms, vouched_below = _NO_LIMIT, 0
    if trust is Trust.BROKER:
        vouched_until_ms = 0
        vouched_below = _broker_start(log, queues, checkpoint, was_closed=was_closed)
    elif trust is Trust.CHECKPOINT:
        vouched_until_ms = checkpoint.log_timestamp_ms
    replay = Replay(
        log,
        queues,
        None,
        keys_after=(0, 0),
        vouched_until_ms=vouched_until_ms,
        vouched_below=vouched_below,
    )
    _replay_from(log.min_offset, replay, queues)
    if index is not None and not index_agrees(log, index, replay.end):
        # No file ends before 1970, so all are removed.
        index.keep_trusted(0)
        replay.keys = put_keys(log, index, replay.end)
    return replay


def _broker_start(
    log: CommitLog, queues: QueueTable, checkpoint: Checkpoint, *, was_closed: bool
) -> int:
    """Return the file in which RocketMQ begins: ``recoverNormally``, ``recoverAbnormally``."""
    if not was_closed:
        return _crash_start(log, checkpoint)
    entries = (last_before(queue, find_end(queue, log.files.end)) for queue in queues.all())
    dispatched = max((each.physical_offset + each.size for each in entries if each), default=0)
    for start in reversed(log.files.starts):
        if start <= dispatched and next(walk(log.files, start, verify=True), None) is not None:
            return start
    return log.min_offset


def _replay_from(start: int, replay: Replay, queues: QueueTable) -> Replay:
    for queue in queues.all():
        queue.max_offset = find_end(queue, start)
    replay.run(start)
    return replay


def _check_end(replay: Replay, checkpoint: Checkpoint) -> None:
    """Report a log that ends before the checkpoint's times."""
    missing = replay.records and replay.last_timestamp_ms < checkpoint.log_timestamp_ms
    if missing:
        reason = (
            f"records stored up to {checkpoint.log_timestamp_ms} were on disk, the last remaining "
            f"one was stored at {replay.last_timestamp_ms}"
        )
        replay.holes.append(Hole(replay.end, replay.end, reason))


@dataclass(frozen=True, slots=True)
class PastRecovery:
    """The time of a store's recovery, and its report."""

    time_ms: int
    report: RecoveryReport


def write_past_recovery(
    directory: Path, report: RecoveryReport, time_ms: int, file_system: FileSystem
) -> None:
    """Write *report* to *directory*; a failure is only logged."""
    kept = replace(report, holes=report.holes[:_HOLES_MAX])
    content = orjson.dumps(_FORM.of({"time_ms": time_ms, **asdict(kept)}))
    try:
        replace_file(file_system, directory / _REPORT, content, is_durable=False)
    except (OSError, StoreError) as error:
        _LOG.warning("%s: the report of its recovery is not saved: %s", directory, error)


def read_past_recovery(
    directory: Path, file_system: FileSystem = SYSTEM_FILES
) -> PastRecovery | None:
    """Return the last recovery of *directory*; None if there was none, or no readable report."""
    try:
        value = _FORM.content(
            orjson.loads(file_system.read(directory / _REPORT, _REPORT_MAX_BYTES))
        )
        return PastRecovery(
            read_value(int, value["time_ms"]), read_value(RecoveryReport, value, str)
        )
    except (FileNotFoundError, StoreError, LookupError, TypeError, ValueError):
        return None
