"""Appends of a batch to a commit log segment and to a consume queue segment.

Invariants
  1. A batch is checked whole before its first byte is written: an invalid batch changes nothing.
  2. The first eight bytes of a batch, its first size and magic, are written last. If the process
     dies before, they are zeros, so recovery sees all of the batch or none of it.
"""

from __future__ import annotations

import numpy as np

from ._compile import (
    BOOL,
    IN_BYTES,
    IN_INT32S,
    IN_INT64S,
    INT,
    OUT_BYTES,
    Bytes,
    Int32s,
    Int64s,
    kernel,
)
from .intrinsics import copy, load_i32, load_i64, release_fence, store_i32, store_i64
from .layout import (
    BORN_HOST,
    ENTRY_BYTES,
    HOST_BYTES,
    HOST_IPV6_EXTRA,
    PHYSICAL_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECORD_MIN_BYTES,
    SYS_FLAG,
    SYS_FLAG_BORN_IPV6,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_PREPARED,
    SYS_FLAG_STORE_IPV6,
    SYS_FLAG_TRANSACTION,
    host_bytes,
    measure_record,
    measure_record_plain,
)

__all__ = [
    "KEEP_STORE_TIMES",
    "append_queue_entries",
    "append_queue_entries_plain",
    "append_records",
    "append_records_plain",
    "is_whole_batch",
    "is_whole_batch_plain",
]

_DECISIVE_FLAGS = SYS_FLAG_STORE_IPV6 | SYS_FLAG_TRANSACTION | SYS_FLAG_INNER_BATCH


KEEP_STORE_TIMES = -1
"""In place of a store timestamp: the records keep those of the store they were imported from."""


def is_whole_batch_plain(sizes: Int32s, key_records: Int32s, total: int) -> bool:
    """Return whether *sizes* int32[n] can be those of n records in *total* bytes.

    ``key_records`` int32[k] must never decrease and stay below n.
    """
    if not len(sizes) or sizes.min() < RECORD_MIN_BYTES or sizes.sum(dtype=np.int64) != total:
        return False
    bounded = np.concatenate(([0], key_records, [len(sizes) - 1]))
    return bool((np.diff(bounded) >= 0).all())


@kernel(is_whole_batch_plain, BOOL, (IN_INT32S, IN_INT32S, INT))
def is_whole_batch(sizes, key_records, total):
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


def append_records_plain(
    segment: Bytes,
    position: int,
    records: Bytes,
    sizes: Int32s,
    queue_id: int,
    first_queue_offset: int,
    first_physical_offset: int,
    store_timestamp_ms: int,
    store_host: Bytes,
    transaction: int,
) -> int:
    """Copy *records* to *position* of *segment* and fill in the fields that only the store knows.

    ``records`` uint8[sum of sizes] holds V1 or V2 records back to back, ``sizes`` int32[n] their
    sizes, ``store_host`` uint8[8], or uint8[20] for records with room for an IPv6 store host.
    Queue id, queue offset, physical offset, store timestamp and store host are written; all else
    is the producer's. If the timestamp is ``KEEP_STORE_TIMES``, those of the records stay too.
    ``transaction`` is the state of all records, as in SYSFLAG; prepared and rolled back records are
    in no queue and get the queue offset 0.

    Returns the position after the last record. Returns -1, with nothing written, if the records
    differ from ``sizes`` or ``transaction``, do not fit into the segment, or include an inner
    batch.
    """
    end = position + len(records)
    if position < 0 or end > len(segment) or not len(sizes):
        return -1
    is_ipv6 = len(store_host) == HOST_BYTES + HOST_IPV6_EXTRA
    if not is_ipv6 and len(store_host) != HOST_BYTES:
        return -1
    must_have = SYS_FLAG_STORE_IPV6 * is_ipv6 | transaction
    starts = np.zeros(len(sizes), np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        measure = measure_record_plain(records, start, len(records))
        sys_flag = int.from_bytes(records[start + SYS_FLAG : start + SYS_FLAG + 4], "big")
        if measure.size < 0 or measure.size != size or sys_flag & _DECISIVE_FLAGS != must_have:
            return -1
    if starts[-1] + sizes[-1] != len(records):
        return -1
    patched = records.copy()
    for i, start in enumerate(starts.tolist()):
        store = measure_record_plain(patched, start, len(records)).store_host
        _put(patched, start + QUEUE_ID, queue_id, 4)
        queue_offset = 0 if transaction & SYS_FLAG_PREPARED else first_queue_offset + i
        _put(patched, start + QUEUE_OFFSET, queue_offset, 8)
        _put(patched, start + PHYSICAL_OFFSET, first_physical_offset + start, 8)
        if store_timestamp_ms != KEEP_STORE_TIMES:
            _put(patched, store - 8, store_timestamp_ms, 8)
        patched[store : store + len(store_host)] = store_host
    segment[position + 8 : end] = patched[8:]
    segment[position : position + 8] = patched[:8]
    return end


@kernel(
    append_records_plain,
    INT,
    (OUT_BYTES, INT, IN_BYTES, IN_INT32S, INT, INT, INT, INT, IN_BYTES, INT),
)
def append_records(
    segment,
    position,
    records,
    sizes,
    queue_id,
    first_queue_offset,
    first_physical_offset,
    store_timestamp_ms,
    store_host,
    transaction,
):
    total = len(records)
    if position < 0 or position + total > len(segment):
        return -1
    if len(sizes) == 0:
        return -1
    host_size = len(store_host)
    if host_size not in (HOST_BYTES, HOST_BYTES + HOST_IPV6_EXTRA):
        return -1
    must_have = SYS_FLAG_STORE_IPV6 if host_size > HOST_BYTES else 0
    must_have |= transaction
    start = 0
    for i in range(len(sizes)):
        size = measure_record(records, start, total).size
        if size < 0 or size != sizes[i]:
            return -1
        if load_i32(records, start + SYS_FLAG) & _DECISIVE_FLAGS != must_have:
            return -1
        start += sizes[i]
    if start != total:
        return -1
    head = load_i64(records, 0)
    copy(segment, position + 8, records, 8, total - 8)
    start = position
    for i in range(len(sizes)):
        born_bytes = host_bytes(load_i32(segment, start + SYS_FLAG), SYS_FLAG_BORN_IPV6)
        store = start + BORN_HOST + born_bytes
        store_i32(segment, start + QUEUE_ID, queue_id)
        queue_offset = 0 if transaction & SYS_FLAG_PREPARED else first_queue_offset + i
        store_i64(segment, start + QUEUE_OFFSET, queue_offset)
        store_i64(segment, start + PHYSICAL_OFFSET, first_physical_offset + start - position)
        if store_timestamp_ms != KEEP_STORE_TIMES:
            store_i64(segment, store, store_timestamp_ms)
        copy(segment, store + 8, store_host, 0, host_size)
        start += sizes[i]
    release_fence()
    store_i64(segment, position, head)
    return start


def append_queue_entries_plain(
    queue_segment: Bytes,
    queue_position: int,
    sizes: Int32s,
    tags_codes: Int64s,
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
    end = queue_position + count * ENTRY_BYTES
    records = min(len(sizes), len(tags_codes))
    if min(queue_position, first, count) < 0 or end > len(queue_segment) or first + count > records:
        return -1
    entries = np.empty(count, [("offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
    offsets = first_physical_offset + np.cumsum(sizes, dtype=np.int64) - sizes
    entries["offset"] = offsets[first : first + count]
    entries["size"] = sizes[first : first + count]
    entries["code"] = tags_codes[first : first + count]
    queue_segment[queue_position:end] = entries.view(np.uint8)
    return end


@kernel(
    append_queue_entries_plain,
    INT,
    (OUT_BYTES, INT, IN_INT32S, IN_INT64S, INT, INT, INT),
)
def append_queue_entries(
    queue_segment, queue_position, sizes, tags_codes, first_physical_offset, first, count
):
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


def _put(buffer: Bytes, position: int, value: int, width: int) -> None:
    buffer[position : position + width] = np.frombuffer(
        int(value).to_bytes(width, "big", signed=True), np.uint8
    )
