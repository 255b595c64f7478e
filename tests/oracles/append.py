"""The kernels of ``rocketray/kernels/append.py`` in plain Python."""

from __future__ import annotations

import numpy as np
from oracles.measure import measure_record
from oracles.property_crc import crc_of, has_crc

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.append import KEEP_STORE_TIMES
from rocketray.kernels.layout import (
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

_DECISIVE_FLAGS = SYS_FLAG_STORE_IPV6 | SYS_FLAG_TRANSACTION | SYS_FLAG_INNER_BATCH


def is_whole_batch(sizes: Int32s, key_records: Int32s, total: int) -> bool:
    if not len(sizes) or sizes.min() < RECORD_MIN_BYTES or sizes.sum(dtype=np.int64) != total:
        return False
    bounded = np.concatenate(([0], key_records, [len(sizes) - 1]))
    return bool((np.diff(bounded) >= 0).all())


def append_records(
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
        measure = measure_record(records, start, len(records))
        sys_flag = int.from_bytes(records[start + SYS_FLAG : start + SYS_FLAG + 4], "big")
        if measure.size < 0 or measure.size != size or sys_flag & _DECISIVE_FLAGS != must_have:
            segment[position + 8 : end] = 0
            return -1
    if starts[-1] + sizes[-1] != len(records):
        segment[position + 8 : end] = 0
        return -1
    patched = records.copy()
    for i, start in enumerate(starts.tolist()):
        measure = measure_record(patched, start, len(records))
        store = measure.store_host
        _put(patched, start + QUEUE_ID, queue_id, 4)
        queue_offset = 0 if transaction & SYS_FLAG_PREPARED else first_queue_offset + i
        _put(patched, start + QUEUE_OFFSET, queue_offset, 8)
        _put(patched, start + PHYSICAL_OFFSET, first_physical_offset + start, 8)
        if store_timestamp_ms != KEEP_STORE_TIMES:
            _put(patched, store - 8, store_timestamp_ms, 8)
        patched[store : store + len(store_host)] = store_host
        record = patched[start : start + measure.size]
        if has_crc(record.tobytes(), measure.properties_size):
            record[-20:] = np.frombuffer(crc_of(record.tobytes()), np.uint8)
    segment[position + 8 : end] = patched[8:]
    segment[position : position + 8] = patched[:8]
    return end


def append_queue_entries(
    queue_segment: Bytes,
    queue_position: int,
    sizes: Int32s,
    tags_codes: Int64s,
    first_physical_offset: int,
    first: int,
    count: int,
) -> int:
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


def _put(buffer: Bytes, position: int, value: int, width: int) -> None:
    buffer[position : position + width] = np.frombuffer(
        int(value).to_bytes(width, "big", signed=True), np.uint8
    )
