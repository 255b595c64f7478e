"""The kernel of ``rocketray/kernels/drain.py`` in plain Python.

Tests replace its steps, functions of this module, by ones that end the process between two of them.
"""

from __future__ import annotations

import ctypes
import struct

import numpy as np
from oracles.append import append_queue_entries, append_records, is_whole_batch
from oracles.index import put_keys

from rocketray.base.ack_mode import durability_numbered
from rocketray.kernels._compile import Bytes, Int64s
from rocketray.kernels.drain import (
    BATCH_HAS_OWNER,
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    BATCH_OWNER_BYTES,
    FRAME_DATA,
    FRAME_HEADER_BYTES,
    FRAME_PAD,
    SLOT_WORDS,
    RingCursor,
    StoreCursor,
)
from rocketray.kernels.layout import ENTRY_BYTES
from rocketray.kernels.ring_numbers import SLOT_OK, SLOT_PENDING

_FRAME_HEADER = struct.Struct("=4Iq")
_BATCH_HEADER = struct.Struct("<4sIIIQ")
_EPOCH = struct.Struct("<q")
_NO_TRANSACTION = 0


def drain_frames(
    data: Bytes,
    slots: Int64s,
    ring: Int64s,
    log: Bytes,
    queue: Bytes,
    index: Bytes,
    store: Int64s,
    store_host: Bytes,
    hash_slots: int,
    max_entries: int,
    queue_id: int,
    store_timestamp_ms: int,
    epoch_line: int,
    epoch: int,
    owner_epoch: int,
) -> int:
    taken = 0
    newest = ctypes.c_int64.from_address(epoch_line)
    while ring[RingCursor.TAIL] < ring[RingCursor.HEAD] and newest.value == epoch:
        tail, head = int(ring[RingCursor.TAIL]), int(ring[RingCursor.HEAD])
        position = tail % len(data)
        size, kind, number, payload, sequence = _FRAME_HEADER.unpack_from(data.data, position)
        fits = size <= min(len(data) - position, head - tail)
        if size < FRAME_HEADER_BYTES or size % FRAME_HEADER_BYTES or not fits:
            break
        if kind == FRAME_PAD:
            ring[RingCursor.TAIL] += size
            continue
        durability = durability_numbered(number)
        if kind != FRAME_DATA or durability is None:
            break
        if not BATCH_HEADER_BYTES <= payload <= size - FRAME_HEADER_BYTES:
            break
        slot = sequence % (len(slots) // SLOT_WORDS) * SLOT_WORDS
        if sequence != ring[RingCursor.SEQUENCE] + 1 or slots[slot] == sequence:
            break
        start = position + FRAME_HEADER_BYTES
        magic, n, k, flags, total = _BATCH_HEADER.unpack_from(data.data, start)
        packed = BATCH_HEADER_BYTES + 12 * n + 8 * k + total
        owner = []
        if flags == BATCH_HAS_OWNER and packed + BATCH_OWNER_BYTES == payload:
            owner = [*_EPOCH.unpack_from(data.data, start + packed)]
        elif flags or packed != payload:
            break
        if magic != BATCH_MAGIC or owner not in ([], [owner_epoch]) or owner == [0]:
            break
        bounds = np.cumsum([start + BATCH_HEADER_BYTES, 8 * n, 4 * n, 4 * k, 4 * k, total])
        columns = [data[bounds[i] : bounds[i + 1]] for i in range(5)]
        codes, records = columns[0].view(np.int64), columns[4]
        sizes, hashes, key_records = (column.view(np.int32) for column in columns[1:4])
        if not is_whole_batch(sizes, key_records, total):
            break
        log_position = int(store[StoreCursor.LOG_POSITION])
        queue_position = int(store[StoreCursor.QUEUE_POSITION])
        queue_offset = int(store[StoreCursor.QUEUE_OFFSET])
        if log_position + total > store[StoreCursor.LOG_END] or k > store[StoreCursor.INDEX_ROOM]:
            break
        if queue_position + n * ENTRY_BYTES > len(queue):
            break
        first = int(store[StoreCursor.LOG_START]) + log_position
        _write_slot(slots, slot, [sequence, SLOT_PENDING, queue_offset, -1, 0, 0])
        end = append_records(
            log,
            log_position,
            records,
            sizes,
            queue_id,
            queue_offset,
            first,
            store_timestamp_ms,
            store_host,
            _NO_TRANSACTION,
        )
        if end < 0:
            break
        append_queue_entries(queue, queue_position, sizes, codes, first, 0, n)
        if k:
            starts = first + np.cumsum(sizes, dtype=np.int64) - sizes
            times = np.full(k, store_timestamp_ms, np.int64)
            put_keys(index, hash_slots, max_entries, hashes, starts[key_records], times, 0)
        _write_slot(slots, slot, [sequence, SLOT_OK, queue_offset, first, store_timestamp_ms, n])
        store[:] += [0, total, 0, n * ENTRY_BYTES, n, -k, 1, n, k, durability.needs_sync]
        ring[RingCursor.SEQUENCE] = sequence
        ring[RingCursor.TAIL] += size
        taken += 1
    return taken


def _write_slot(slots: Int64s, slot: int, words: list[int]) -> None:
    slots[slot] = 0
    slots[slot + 1 : slot + SLOT_WORDS] = words[1:]
    slots[slot] = words[0]
