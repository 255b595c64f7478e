"""Lookups of messages by key and by time.

The index finds by the hash of a key and may hold an entry twice after a crash; every hit is read
and compared before it counts.
"""

from __future__ import annotations

import logging
from typing import Literal

import numpy as np

from rocketray.errors import CorruptRecordError, OffsetOutOfRangeError
from rocketray.hashing import index_key_hash
from rocketray.kernels.hashing import separated_key_hashes
from rocketray.message import StoredMessage
from rocketray.store.index.key_index import KeyIndex
from rocketray.store.log.commit_log import CommitLog
from rocketray.store.queues.consume_queue import ConsumeQueue, QueueEntry

__all__ = ["find_by_key", "find_by_time"]

_LOG = logging.getLogger(__name__)


def find_by_key(
    index: KeyIndex,
    log: CommitLog,
    topic: str,
    key: str,
    *,
    max_count: int,
    span: tuple[int, int],
    distinct: bool,
) -> list[StoredMessage]:
    """Return the newest *max_count* messages with *key* stored within *span*, oldest first.

    Without *distinct* a message with the key twice is returned, and counts, twice.
    """
    hits: dict[int, int] = {}
    found: list[StoredMessage] = []
    for offset in index.search(_key_hash(topic, key)):
        if len(found) >= max_count:
            break
        if offset < log.min_offset:
            continue  # the record was deleted, its index file not yet
        message = _indexed_message(log, offset)
        if message is None or message.topic != topic:
            continue
        hits[offset] = hits.get(offset, 0) + 1
        carried = message.keys.count(key) + (message.unique_key == key)
        carried += message.imported_offset_id == key
        allowed = min(carried, 1) if distinct else carried
        if hits[offset] <= allowed and span[0] <= message.store_timestamp_ms <= span[1]:
            found.append(message)
    return sorted(found, key=lambda message: message.physical_offset)


def find_by_time(
    queue: ConsumeQueue, log: CommitLog, timestamp_ms: int, boundary: Literal["lower", "upper"]
) -> int:
    """Return the queue offset of the first message stored at or after a time, or last at or before.

    An unreadable record counts as old.
    """

    def stored_ms(entry: QueueEntry) -> int:
        return log.store_timestamp_ms(entry.physical_offset, entry.size) or 0

    if boundary == "lower":
        return queue.first_at_or_after(lambda entry: stored_ms(entry) >= timestamp_ms)
    after = queue.first_at_or_after(lambda entry: stored_ms(entry) > timestamp_ms)
    return max(after - 1, queue.min_offset)


def _key_hash(topic: str, key: str) -> int:
    """Return the index hash of *key*: as ``index_key_hash``, in a tenth of its time."""
    try:
        text = f"{topic}#{key}\x02".encode()
    except UnicodeEncodeError:  # a lone surrogate, which is never stored
        return index_key_hash(f"{topic}#{key}")
    out = np.zeros(1, np.int32)
    separated_key_hashes(np.frombuffer(text, np.uint8), 0, out)
    return int(out[0])


def _indexed_message(log: CommitLog, physical_offset: int) -> StoredMessage | None:
    """Return the record of an index entry; log and return None when there is none."""
    try:
        return log.message(physical_offset)
    except (CorruptRecordError, OffsetOutOfRangeError) as error:
        _LOG.warning("an index entry points to no record: %s", error)
        return None
