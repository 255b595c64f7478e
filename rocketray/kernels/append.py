"""Appends of a batch to a commit log segment and to a consume queue segment.

Invariants
  1. The first eight bytes of a batch, its first size and magic, are written last. If the process
     dies before, they are zeros, so recovery sees all of the batch or none of it.
  2. The records of a batch may be in a ring, whose producer may change them at any moment. So they
     are checked in the segment, which it cannot write: no byte of them is read twice. What was
     copied of an invalid batch is zeros again.
  3. The columns of a batch are the caller's own; drain.py copies those of a ring.
"""

from __future__ import annotations

import numpy as np

from ._compile import InBytes, InInt32s, InInt64s, OutBytes, kernel
from .hashing import crc32_of
from .intrinsics import copy, load_i32, load_i64, release_fence, store_i32, store_i64
from .layout import (
    ENTRY_BYTES,
    HOST_BYTES,
    HOST_IPV6_EXTRA,
    PHYSICAL_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECORD_MIN_BYTES,
    SYS_FLAG,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_PREPARED,
    SYS_FLAG_STORE_IPV6,
    SYS_FLAG_TRANSACTION,
)
from .measure import measure_begun_record, measure_record
from .property_crc import crc_place, write_crc

_HEAD_BYTES = 8  # size and magic
# The bits by which the batch, its store host or its queue entries would be other ones than the
# caller says.
_DECISIVE_FLAGS = SYS_FLAG_STORE_IPV6 | SYS_FLAG_TRANSACTION | SYS_FLAG_INNER_BATCH


KEEP_STORE_TIMES = -1
"""In place of a store timestamp: the records keep those of the store they were imported from."""


@kernel
def is_whole_batch(sizes: InInt32s, key_records: InInt32s, total: int) -> bool:
    """Return whether *sizes* int32[n] can be those of n records in *total* bytes.

    ``key_records`` int32[k] must never decrease and stay below n.
    """
    left = total
    for i in range(len(sizes)):
        if sizes[i] < RECORD_MIN_BYTES:
            return False
        left -= sizes[i]
    newest = 0
    for i in range(len(key_records)):
        if key_records[i] < newest:
            return False
        newest = key_records[i]
    return left == 0 and newest < len(sizes)


@kernel
def append_records(
    segment: OutBytes,
    position: int,
    records: InBytes,
    sizes: InInt32s,
    queue_id: int,
    first_queue_offset: int,
    first_physical_offset: int,
    store_timestamp_ms: int,
    store_host: InBytes,
    transaction: int,
) -> int:
    """Copy *records* to *position* of *segment* and fill in the fields that only the store knows.

    ``records`` uint8[sum of sizes] holds V1 or V2 records back to back, ``sizes`` int32[n] their
    sizes, ``store_host`` uint8[8], or uint8[20] for records with room for an IPv6 store host.
    Queue id, queue offset, physical offset, store timestamp and store host are written, and the CRC
    property where a record has room for one; all else is the producer's. If the timestamp is
    ``KEEP_STORE_TIMES``, those of the records stay too.
    ``transaction`` is the state of all records, as in SYSFLAG; prepared and rolled back records are
    in no queue and get the queue offset 0.

    Returns the position after the last record. Returns -1, and leaves zeros behind *position*, if
    the records differ from ``sizes`` or ``transaction``, do not fit into the segment, or include an
    inner batch.
    """
    total = len(records)
    end = position + total
    if position < 0 or end > len(segment):
        return -1
    if len(sizes) == 0 or total < RECORD_MIN_BYTES:
        return -1
    host_size = len(store_host)
    if host_size not in (HOST_BYTES, HOST_BYTES + HOST_IPV6_EXTRA):
        return -1
    must_have = SYS_FLAG_STORE_IPV6 if host_size > HOST_BYTES else 0
    must_have |= transaction
    # Size and magic in one read: they are checked and written from here (invariants 1 and 2).
    head = load_i64(records, 0)
    copy(segment, position + _HEAD_BYTES, records, _HEAD_BYTES, total - _HEAD_BYTES)
    start, whole = position, 0
    for i in range(len(sizes)):
        if i == 0:
            # Both halves with their signs, as i32 of the record.
            measure = measure_begun_record(segment, start, end, head >> 32, (head << 32) >> 32)
        else:
            measure = measure_record(segment, start, end)
        if measure.size < 0 or measure.size != sizes[i]:
            break
        if load_i32(segment, start + SYS_FLAG) & _DECISIVE_FLAGS != must_have:
            break
        start += measure.size
        whole += 1
    if whole < len(sizes) or start != end:
        # What is not zero behind the end of the log counts as the remains of a crash.
        segment[position + _HEAD_BYTES : end] = 0
        return -1
    begun = np.empty(_HEAD_BYTES, np.uint8)
    store_i64(begun, 0, head)
    start = position
    for i in range(len(sizes)):
        if i == 0:
            measure = measure_begun_record(segment, start, end, head >> 32, (head << 32) >> 32)
        else:
            measure = measure_record(segment, start, end)
        store_i32(segment, start + QUEUE_ID, queue_id)
        queue_offset = 0 if transaction & SYS_FLAG_PREPARED else first_queue_offset + i
        store_i64(segment, start + QUEUE_OFFSET, queue_offset)
        store_i64(segment, start + PHYSICAL_OFFSET, first_physical_offset + start - position)
        if store_timestamp_ms != KEEP_STORE_TIMES:
            store_i64(segment, measure.store_host - 8, store_timestamp_ms)
        copy(segment, measure.store_host, store_host, 0, host_size)
        at = crc_place(segment, start + sizes[i], measure.properties_size)
        if at >= 0:
            first = start if i > 0 else start + _HEAD_BYTES  # these bytes are not written yet
            crc = 0 if i > 0 else crc32_of(0, begun, 0, _HEAD_BYTES)
            write_crc(segment, at, crc32_of(crc, segment, first, at - first))
        start += sizes[i]
    release_fence()
    store_i64(segment, position, head)
    return start


@kernel
def append_queue_entries(
    queue_segment: OutBytes,
    queue_position: int,
    sizes: InInt32s,
    tags_codes: InInt64s,
    first_physical_offset: int,
    first: int,
    count: int,
) -> int:
    """Write the entries of the records *first* to *first + count* of a batch into one segment.

    ``sizes`` int32[n] and ``tags_codes`` int64[n] are the whole batch's, and
    ``first_physical_offset`` is where its record 0 begins, so that a batch which crosses from one
    queue segment to the next is written by two calls that differ in *first* and *count*.

    Returns the position in bytes after the last entry. Returns -1, with nothing written, if the
    entries do not fit or the batch has fewer records.
    """
    if queue_position < 0 or first < 0 or count < 0:
        return -1
    if queue_position + count * ENTRY_BYTES > len(queue_segment):
        return -1
    if first + count > len(sizes) or first + count > len(tags_codes):
        return -1
    physical_offset = first_physical_offset
    for i in range(first):
        physical_offset += sizes[i]
    for i in range(first, first + count):
        store_i64(queue_segment, queue_position, physical_offset)
        store_i32(queue_segment, queue_position + 8, sizes[i])
        store_i64(queue_segment, queue_position + 12, tags_codes[i])
        queue_position += ENTRY_BYTES
        physical_offset += sizes[i]
    return queue_position
