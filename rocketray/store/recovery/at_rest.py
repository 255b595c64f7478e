"""Opening of a store that was killed at rest: by the ends that its writer had noted.

A store at rest has everything on disk and is not being written. Its mark (files/open_mark.py) says
so, with the ends of all files, and is taken back before the next change. So after a kill of its
process there is nothing to recover: this is what a node's idle queues need of its next start,
thousands of them.

Nothing is changed here. Where anything differs from what was noted, the store is recovered as after
any crash, which needs no note.
"""

from __future__ import annotations

import zlib
from typing import Any

import orjson

from rocketray.store.files.checkpoint import Checkpoint
from rocketray.store.index.key_index import KeyIndex
from rocketray.store.log.commit_log import CommitLog
from rocketray.store.queues.consume_queue import ConsumeQueue
from rocketray.store.queues.queue_recovery import find_begin, find_end, last_before
from rocketray.store.queues.queue_table import QueueTable

from .clean_stop import ends_of

_SIZE_BYTES = 4  # of a record, its first field


def noted_ends(
    log: CommitLog, queues: QueueTable, index: KeyIndex, checkpoint: Checkpoint
) -> dict[str, Any]:
    """Return the ends of all files as the mark has them: of the index files only a checksum."""
    ends = ends_of(log, queues, index, checkpoint)
    # The mark is one page; the names of many index files would not fit.
    return {**ends, "index": zlib.crc32(orjson.dumps(ends["index"]))}


def open_at_rest(
    noted: object, log: CommitLog, queues: QueueTable, index: KeyIndex, checkpoint: Checkpoint
) -> bool:
    """Set the ends of log and queues to those that were *noted*; return whether they hold.

    *noted* is what :func:`noted_ends` returned in another process, as it was read from a file.
    Each queue's last entry has to lead to its record, and behind the log there has to be nothing.
    """
    match noted:
        case {"log": [int(begin), int(end)], "queues": dict(queue_ends)} if 0 <= begin <= end:
            pass
        case _:
            return False
    if log.files.repaired or end > log.files.end:
        return False
    log.trust_end(end)
    for (topic, queue_id), queue in queues.items():
        match queue_ends.get(f"{topic}/{queue_id}"):
            case [int(), int(queue_end)] if queue_end >= 0:
                if not _ends_at(queue, queue_end, log):
                    return False
            case _:
                return False
    return _is_empty_at(log, end) and noted_ends(log, queues, index, checkpoint) == noted


def _ends_at(queue: ConsumeQueue, end: int, log: CommitLog) -> bool:
    """Set the ends of *queue*; return whether it ends there, and its last entry has a record."""
    if queue.files.repaired or queue.lost_end:
        return False
    if queue.ext is not None and (find_end(queue, log.max_offset) != end or queue.has_lost_units):
        return False  # the units end with the last entry that has one
    last = last_before(queue, end)
    if (last is None and queue.gaps.before(end)) or _has_entry_at(queue, end):
        return False
    if last is not None and last.physical_offset < log.min_offset:
        last = None  # its record was removed
    if last is not None and log.store_timestamp_ms(last.physical_offset, last.size) is None:
        return False
    queue.max_offset = end
    find_begin(queue, log.min_offset)
    return True


def _has_entry_at(queue: ConsumeQueue, queue_offset: int) -> bool:
    return any(field.any() for field in queue.columns(queue_offset, queue_offset + 1))


def _is_empty_at(log: CommitLog, end: int) -> bool:
    file = log.files.file(end)
    return file is None or not any(file.read(end - file.start, _SIZE_BYTES))
