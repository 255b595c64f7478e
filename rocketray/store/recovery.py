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

import numpy as np

from rocketray.errors import InvalidNameError
from rocketray.hashing import index_key_hash, tags_code
from rocketray.message import KEYS, PROPERTY_SEPARATOR, TAGS, UNIQUE_KEY, decode_properties
from rocketray.names import check_topic

from .checkpoint import Checkpoint
from .commit_log import CommitLog
from .consume_queue import ConsumeQueue
from .key_index import KeyIndex
from .queue_table import QueueTable
from .record import RecordFields, is_rollback, waits_for_commit

__all__ = ["RecoveryReport", "last_store_timestamp_ms", "recover", "recover_read_only"]

_PENDING_MAX = 4096  # entries or keys put at once
_NO_LIMIT = 1 << 62
_PROPERTIES_END = ord(PROPERTY_SEPARATOR)


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
        if entry is None:
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


class _PendingEntries:
    """Entries of one queue that were read from the log and are not put yet."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self._physical_offsets: list[int] = []
        self._sizes: list[int] = []
        self._tags_codes: list[int] = []

    @property
    def end(self) -> int:
        """The queue offset that comes next."""
        return self.queue.max_offset + len(self._sizes)

    def add(self, physical_offset: int, size: int, code: int) -> None:
        self._physical_offsets.append(physical_offset)
        self._sizes.append(size)
        self._tags_codes.append(code)
        if len(self._sizes) >= _PENDING_MAX:
            self.put()

    def put(self) -> None:
        self.queue.put(self._physical_offsets, self._sizes, self._tags_codes)
        self._physical_offsets, self._sizes, self._tags_codes = [], [], []


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
        self._pending: dict[tuple[str, int], _PendingEntries] = {}
        self._key_hashes: list[int] = []
        self._key_offsets: list[int] = []
        self._key_timestamp_ms = 0
        self.start = self.end = 0
        self.records = self.entries = self.keys = 0

    def run(self, start: int) -> None:
        """Read from *start*, the offset of a record or of a file."""
        self.start = self.end = start
        for offset, fields, buffer in self._log.walk(start, verify=True):
            if not self._take(offset, fields, buffer):
                break
            self.end = offset + fields.size
        for pending in self._pending.values():
            pending.put()
        self._put_keys()
        self.end = self._log.end_after(self.end)

    def _take(self, offset: int, fields: RecordFields, buffer: memoryview) -> bool:
        """Put one record's entry and keys; False when topic or properties are not whole.

        The body has a CRC, they have none: a part that never came to disk shows as zeros in a
        topic, or as a property string that does not end as we end every one.
        """
        record_end = offset % self._log.segment_bytes + fields.size
        topic = bytes(buffer[fields.topic_start : fields.topic_end])
        text = bytes(buffer[fields.properties_start : record_end])
        if not _is_topic(topic) or (text and text[-1] != _PROPERTIES_END):
            return False
        name, properties = topic.decode(), decode_properties(text)
        self.records += 1
        if not waits_for_commit(fields.sys_flag):
            self._take_entry(offset, name, fields, tags_code(properties.get(TAGS)))
        if not is_rollback(fields.sys_flag) and offset >= self._keys_from:
            self._take_keys(offset, name, fields.store_timestamp_ms, properties)
        return True

    def _take_entry(self, offset: int, topic: str, fields: RecordFields, code: int) -> None:
        name = (topic, fields.queue_id)
        pending = self._pending.get(name)
        if pending is None:
            pending = self._pending[name] = _PendingEntries(self._queues.get(*name))
        if fields.queue_offset > pending.end:
            if self.start > self._log.min_offset:
                raise _GapError
            pending.put()
            pending.queue.restart_at(fields.queue_offset)
        if fields.queue_offset == pending.end:
            pending.add(offset, fields.size, code)
            self.entries += 1

    def _take_keys(
        self, offset: int, topic: str, timestamp_ms: int, properties: dict[str, str]
    ) -> None:
        if timestamp_ms != self._key_timestamp_ms or len(self._key_hashes) >= _PENDING_MAX:
            self._put_keys()
            self._key_timestamp_ms = timestamp_ms
        unique = properties.get(UNIQUE_KEY)
        keys = [unique] if unique else []
        keys += [key for key in properties.get(KEYS, "").split(" ") if key]
        if offset == self._keys_from:
            del keys[: self._keys_there]
        self._key_hashes += [index_key_hash(f"{topic}#{key}") for key in keys]
        self._key_offsets += [offset] * len(keys)

    def _put_keys(self) -> None:
        self._index.reserve(len(self._key_hashes))
        self._index.put(
            np.array(self._key_hashes, np.int32),
            np.array(self._key_offsets, np.int64),
            self._key_timestamp_ms,
        )
        self.keys += len(self._key_hashes)
        self._key_hashes, self._key_offsets = [], []


def _is_topic(name: bytes) -> bool:
    try:
        check_topic(name.decode())
    except (UnicodeDecodeError, InvalidNameError):
        return False
    return True
