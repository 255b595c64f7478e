"""What happens when a store is opened: the end of the log is found, and all else made to agree.

The log is the truth. After a clean stop the queues say where the log ends. After a crash (the
``abort`` file is there) everything that the checkpoint does not vouch for is read again: records
are verified one by one up to the first that is not whole, what stands behind it is cut and kept
aside, and the queue entries and keys of the records read are put again.

Invariants
  1. Nothing before the first bad record is lost, nothing behind it is ever handed out.
  2. Recovery may be cut short and repeated: it ends the same.
  3. A queue's entries follow each other without a gap; where that cannot be had from the part of
     the log that is read, all of the log is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .checkpoint import Checkpoint
from .commit_log import CommitLog
from .consume_queue import ConsumeQueue
from .key_index import KeyIndex
from .log_blocks import LogBlock, read_blocks, record_keys
from .queue_table import QueueTable
from .sys_flag import PREPARED, ROLLBACK, TRANSACTION

__all__ = ["RecoveryReport", "last_store_timestamp_ms", "recover", "recover_read_only"]

_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening a store found and did. Offsets and sizes are bytes of the log."""

    was_clean: bool
    start_offset: int
    end_offset: int
    records_read: int
    bytes_kept_aside: int
    queue_entries_put: int
    keys_put: int
    elapsed_ms: int


class _GapError(Exception):
    """A queue lacks entries from before the part of the log that was read."""


def recover(
    log: CommitLog,
    queues: QueueTable,
    index: KeyIndex,
    checkpoint: Checkpoint,
    *,
    was_clean: bool,
    clock_ms: Callable[[], int],
) -> RecoveryReport:
    """Make log, queues and index agree and say where they end. The caller is the writer.

    Raises:
        StoreFullError: there is no room for entries or keys; opening again goes on.
    """
    began_ms = clock_ms()
    clean_start = _clean_start(log, queues) if was_clean else None
    kept = 0
    if clean_start is not None:
        replay = _Replay(log, queues, index, *index.position())
        try:
            replay.run(clean_start)
        except _GapError:
            clean_start = None
    if clean_start is not None:
        log.trust_end(replay.end)
    else:
        replay = _replay_after_crash(log, queues, index, checkpoint)
        kept = log.cut(replay.end, flushed=replay.start)
    for queue in queues.all():
        queue.find_begin(log.min_offset)
        if clean_start is None:
            queue.clear_tail()
    return RecoveryReport(
        was_clean=clean_start is not None,
        start_offset=replay.start,
        end_offset=replay.end,
        records_read=replay.records,
        bytes_kept_aside=kept,
        queue_entries_put=replay.entries,
        keys_put=replay.keys,
        elapsed_ms=clock_ms() - began_ms,
    )


def recover_read_only(
    log: CommitLog, queues: QueueTable, checkpoint: Checkpoint, *, was_clean: bool
) -> None:
    """Find the ends of log and queues and change nothing on disk."""
    start = _clean_start(log, queues) if was_clean else None
    end = start = _crash_start(log, checkpoint) if start is None else start
    for offset, fields, _ in log.walk(start, verify=True):
        end = offset + fields.size
    log.trust_end(end)
    for queue in queues.all():
        queue.max_offset = queue.find_end(end)
        queue.find_begin(log.min_offset)


def last_store_timestamp_ms(log: CommitLog, queues: QueueTable) -> int:
    """The newest store time of a queue's last message; 0 in an empty store."""
    newest = 0
    for queue in queues.all():
        entry = queue.last_before(queue.max_offset)
        if entry is not None:
            newest = max(newest, log.store_timestamp_ms(entry.physical_offset, entry.size) or 0)
    return newest


def _clean_start(log: CommitLog, queues: QueueTable) -> int | None:
    """The end of the last record that a queue knows; None when a queue's end is no record."""
    start = int(log.min_offset)
    for queue in queues.all():
        queue.max_offset = queue.find_end(_NO_LIMIT)
        entry = queue.last_before(queue.max_offset)
        if entry is None or entry.physical_offset < log.min_offset:
            continue
        if log.store_timestamp_ms(entry.physical_offset, entry.size) is None:
            return None
        start = max(start, entry.physical_offset + entry.size)
    return start


def _crash_start(log: CommitLog, checkpoint: Checkpoint) -> int:
    """The newest file whose first record is old enough for the checkpoint to vouch for it."""
    trusted_until = checkpoint.trusted_until_ms()
    for start in reversed(log.segment_starts):
        for _, fields, _ in log.walk(start, verify=True):
            if 0 < fields.store_timestamp_ms <= trusted_until:
                return start
            break
    return log.min_offset


def _replay_after_crash(
    log: CommitLog, queues: QueueTable, index: KeyIndex, checkpoint: Checkpoint
) -> _Replay:
    index.keep_trusted(checkpoint.index_timestamp_ms)
    keys_from, keys_there = index.position()
    segment = keys_from - keys_from % log.segment_bytes
    start = max(min(_crash_start(log, checkpoint), segment), log.min_offset)
    try:
        return _replay_from(start, _Replay(log, queues, index, keys_from, keys_there), queues)
    except _GapError:
        index.keep_trusted(0)
        return _replay_from(log.min_offset, _Replay(log, queues, index, 0, 0), queues)


def _replay_from(start: int, replay: _Replay, queues: QueueTable) -> _Replay:
    for queue in queues.all():
        queue.max_offset = queue.find_end(start)
    replay.run(start)
    return replay


class _Replay:
    """Reads the log from one place to its end, and puts what it finds into queues and index."""

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        index: KeyIndex,
        keys_from: int,
        keys_there: int,
    ) -> None:
        """Keys are put from the record at *keys_from* on, less the first *keys_there* of it."""
        self._log = log
        self._queues = queues
        self._index = index
        self._keys_from = keys_from
        self._keys_there = keys_there
        self.start = self.end = 0
        self.records = self.entries = self.keys = 0

    def run(self, start: int) -> None:
        """Read from *start*, the offset of a record or of a file."""
        self.start = self.end = start
        for block in read_blocks(self._log, start):
            self._put_entries(block)
            self._put_keys(block)
            self.records += len(block)
            self.end = block.end
        self.end = self._log.end_after(self.end)

    def _put_entries(self, block: LogBlock) -> None:
        transaction = block.sys_flags & TRANSACTION
        visible = (transaction != PREPARED) & (transaction != ROLLBACK)
        for number, topic in enumerate(block.topics):
            of_topic = visible & (block.topic_numbers == number)
            for queue_id in np.unique(block.queue_ids[of_topic]).tolist():
                chosen = block.only(of_topic & (block.queue_ids == queue_id))
                queue = self._queues.get(topic, queue_id)
                breaks = np.flatnonzero(np.diff(chosen.queue_offsets) != 1) + 1
                for first, end in pairwise([0, *breaks.tolist(), len(chosen)]):
                    self._put_run(queue, chosen, first, end)

    def _put_run(self, queue: ConsumeQueue, block: LogBlock, first: int, end: int) -> None:
        """Put the entries *first* to *end*, whose queue offsets follow each other."""
        begins_at = int(block.queue_offsets[first])
        if begins_at > queue.max_offset:
            if self.start > self._log.min_offset:
                raise _GapError
            queue.restart_at(begins_at)
        first += queue.max_offset - begins_at  # what is there already
        if first < end:
            queue.put(
                block.physical_offsets[first:end],
                block.sizes[first:end],
                block.tags_codes[first:end],
            )
            self.entries += end - first

    def _put_keys(self, block: LogBlock) -> None:
        wanted = (block.sys_flags & TRANSACTION) != ROLLBACK
        block = block.only(wanted & (block.physical_offsets >= self._keys_from))
        if not len(block):
            return
        hashes, records = record_keys(block)
        if block.physical_offsets[0] == self._keys_from:
            there = min(self._keys_there, int((records == 0).sum()))
            hashes, records = hashes[there:], records[there:]
        offsets = block.physical_offsets[records]
        times = block.store_timestamps_ms[records]
        self._index.reserve(len(hashes))
        self._index.put(hashes, offsets, times)
        self.keys += len(hashes)
