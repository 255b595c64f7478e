"""Storing the frames of a producer's ring: log, queue, index and the frame's slot, in one call.

A kernel takes frame after frame as long as each is ordinary: well formed, not stored before, in no
transaction, and with room for all of it in the current files. It stops before the first other
frame, which the caller then stores separately.

Order, for each frame
  1. The slot says PENDING, with the queue offset that the frame gets.
  2. The records, then the queue's entries, then the index's.
  3. The slot says OK. No byte of the next frame is written before.
If the process dies at any point, slot and log together tell how far it came.

The producer may change a frame at any moment: every number of it is read once, and the columns by
which memory is written are copied before they are checked. append.py says how the records are.

The layout of frames and slots is described in ``runtime/ipc/ring.py``, that of a batch in
``store/batches/encoded_batch.py``.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from rocketray.base.ack_mode import Durability

from ._compile import InBytes, OutBytes, OutInt64s, device, kernel
from .append import (
    append_queue_entries,
    append_records,
    is_whole_batch,
)
from .index import put_keys
from .intrinsics import atomic_load_i64, load_native_u64, release_fence
from .layout import ENTRY_BYTES
from .ring_numbers import SLOT_OK, SLOT_PENDING

FRAME_HEADER_BYTES = 32  # also the alignment, so that a header always fits before the end
FRAME_DATA, FRAME_PAD = 1, 2  # a pad fills the end of the ring, where the next frame does not fit
BATCH_MAGIC = b"RRB1"
BATCH_HEADER_BYTES = 24  # magic, records, keys, flags, record bytes: 4 * 4 + 8
BATCH_HAS_OWNER = 2  # a flag: an ownership epoch follows the records
BATCH_OWNER_BYTES = 8  # the epoch, an i64
SLOT_WORDS = 6  # sequence, status, queue offset, physical offset, store timestamp, count
_MAGIC_NUMBER = int.from_bytes(BATCH_MAGIC, "little")
_WORD = 0xFFFFFFFF
_COLUMNS_MIN = 4096  # numbers of a frame that are copied without memory of its own
_NO_TRANSACTION = 0
# The table of ack modes, as a kernel reads it: their numbers are below a count, and each is a bit.
_MODES = len(Durability)
_SYNC_MODES = sum(1 << mode for mode in Durability if mode.needs_sync)


class RingCursor(IntEnum):
    """The ring's numbers in a drain: int64[3]."""

    TAIL = 0  # bytes that were taken
    HEAD = 1  # bytes that the producer published
    SEQUENCE = 2  # of the last taken frame


class StoreCursor(IntEnum):
    """The store's numbers in a drain: int64[10]."""

    LOG_START = 0  # the physical offset of the log file's first byte
    LOG_POSITION = 1  # the next record's position in the file
    LOG_END = 2  # the end for records in the file
    QUEUE_POSITION = 3  # the next entry's position in the queue's file
    QUEUE_OFFSET = 4  # the next message's
    INDEX_ROOM = 5  # keys that still fit
    BATCHES = 6  # taken; then the messages and keys in them
    MESSAGES = 7
    KEYS = 8
    TO_DISK = 9  # batches that must be on disk before they are acknowledged


@device
def _signed(word):
    return np.int64(word)


@device
def _low(word):
    return np.int64(word & np.uint64(_WORD))


@device
def _high(word):
    return np.int64(word >> np.uint64(32))


@device
def _write_slot(slots, slot, sequence, status, queue_offset, first, store_timestamp_ms, count):
    """Write a slot; its sequence number last, because it makes the rest valid. Not reordered."""
    release_fence()
    slots[slot] = 0
    release_fence()
    slots[slot + 1] = status
    slots[slot + 2] = queue_offset
    slots[slot + 3] = first
    slots[slot + 4] = store_timestamp_ms
    slots[slot + 5] = count
    release_fence()
    slots[slot] = sequence
    release_fence()


@kernel
def drain_frames(
    data: OutBytes,
    slots: OutInt64s,
    ring: OutInt64s,
    log: OutBytes,
    queue: OutBytes,
    index: OutBytes,
    store: OutInt64s,
    store_host: InBytes,
    hash_slots: int,
    max_entries: int,
    queue_id: int,
    store_timestamp_ms: int,
    epoch_line: int,
    epoch: int,
    owner_epoch: int,
) -> int:
    """Store ordinary frames up to the first other one, or all; return their number.

    ``data`` uint8 are the ring's frames, ``slots`` int64[6 × slots] their outcomes; ``log``,
    ``queue`` and ``index`` are whole files, the last may be empty. *ring* and *store* are advanced
    (:class:`RingCursor`, :class:`StoreCursor`). Nothing is stored once the number at *epoch_line*
    differs from *epoch*. A batch of an owner is ordinary if it has the ownership epoch
    *owner_epoch*, which is admitted already; 0 if none is.
    """
    assert len(ring) == 3
    assert len(store) == 10
    assert store[StoreCursor.LOG_END] <= len(log)
    taken = 0
    columns = np.empty(_COLUMNS_MIN, np.int32)
    while ring[RingCursor.TAIL] < ring[RingCursor.HEAD] and atomic_load_i64(epoch_line) == epoch:
        tail = ring[RingCursor.TAIL]
        position = tail % len(data)
        room = min(len(data) - position, ring[RingCursor.HEAD] - tail)
        if room < FRAME_HEADER_BYTES:
            break
        word = load_native_u64(data, position)
        size, kind = _low(word), _high(word)
        word = load_native_u64(data, position + 8)
        durability, payload = _low(word), _high(word)
        sequence = _signed(load_native_u64(data, position + 16))
        if size < FRAME_HEADER_BYTES or size % FRAME_HEADER_BYTES != 0 or size > room:
            break
        if kind == FRAME_PAD:
            ring[RingCursor.TAIL] += size
            continue
        if kind != FRAME_DATA or durability >= _MODES:
            break
        if payload < BATCH_HEADER_BYTES or payload > size - FRAME_HEADER_BYTES:
            break
        slot = sequence % (len(slots) // SLOT_WORDS) * SLOT_WORDS
        # A slot with this sequence: the frame was begun before, and the caller completes or answers
        # it.
        if sequence != ring[RingCursor.SEQUENCE] + 1 or slots[slot] == sequence:
            break
        start = position + FRAME_HEADER_BYTES
        word = load_native_u64(data, start)
        magic, n = _low(word), _high(word)
        word = load_native_u64(data, start + 8)
        k, flags = _low(word), _high(word)
        total = _signed(load_native_u64(data, start + 16))
        if magic != _MAGIC_NUMBER or total < 0 or total > payload:
            break
        packed = BATCH_HEADER_BYTES + 12 * n + 8 * k + total
        if flags == BATCH_HAS_OWNER:
            if packed + BATCH_OWNER_BYTES != payload or owner_epoch < 1:
                break
            if _signed(load_native_u64(data, start + packed)) != owner_epoch:
                break
        elif flags != 0 or packed != payload:
            break
        start += BATCH_HEADER_BYTES
        codes = data[start : start + 8 * n].view(np.int64)
        start += 8 * n
        if n + 2 * k > len(columns):
            # Twice what is needed, so that frames that grow by little allocate seldom.
            columns = np.empty(2 * (n + 2 * k), np.int32)
        columns[: n + 2 * k] = data[start : start + 4 * (n + 2 * k)].view(np.int32)
        start += 4 * (n + 2 * k)
        sizes = columns[:n]
        hashes = columns[n : n + k]
        key_records = columns[n + k : n + 2 * k]
        records = data[start : start + total]
        if not is_whole_batch(sizes, key_records, total):
            break
        log_position = store[StoreCursor.LOG_POSITION]
        queue_position = store[StoreCursor.QUEUE_POSITION]
        queue_offset = store[StoreCursor.QUEUE_OFFSET]
        if log_position + total > store[StoreCursor.LOG_END] or k > store[StoreCursor.INDEX_ROOM]:
            break
        if queue_position + n * ENTRY_BYTES > len(queue):
            break
        first = store[StoreCursor.LOG_START] + log_position
        _write_slot(slots, slot, sequence, SLOT_PENDING, queue_offset, -1, 0, 0)
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
        if k > 0:
            offsets = np.empty(k, np.int64)
            record, offset = 0, first
            for i in range(k):
                while record < key_records[i]:
                    offset += sizes[record]
                    record += 1
                offsets[i] = offset
            times = np.full(k, store_timestamp_ms)
            put_keys(index, hash_slots, max_entries, hashes, offsets, times, 0)
        _write_slot(slots, slot, sequence, SLOT_OK, queue_offset, first, store_timestamp_ms, n)
        store[StoreCursor.LOG_POSITION] += total
        store[StoreCursor.QUEUE_POSITION] += n * ENTRY_BYTES
        store[StoreCursor.QUEUE_OFFSET] += n
        store[StoreCursor.INDEX_ROOM] -= k
        store[StoreCursor.BATCHES] += 1
        store[StoreCursor.MESSAGES] += n
        store[StoreCursor.KEYS] += k
        store[StoreCursor.TO_DISK] += _SYNC_MODES >> durability & 1
        ring[RingCursor.SEQUENCE] = sequence
        ring[RingCursor.TAIL] = tail + size
        taken += 1
    return taken
