"""Appends of keys to an IndexFile.

Layout: a header of 40 bytes, ``hash_slots`` slots of 4, ``max_entries`` entries of 20, all
big-endian. A slot holds the number of its newest entry; each entry holds the number of the
previous one. Entries count from 1, so the first entry's place is never used. Source: RocketMQ
5.3.3, ``IndexFile.putKey``, ``IndexHeader``.

The entry is written before the slot and the slot before the header: a reader that trusts only
entries below the header's count never follows a slot into an unwritten entry.
"""

from __future__ import annotations

import struct

from ._compile import IN_INT32S, IN_INT64S, INT, OUT_BYTES, Bytes, Int32s, Int64s, kernel
from .intrinsics import load_i32, load_i64, store_i32, store_i64
from .layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES

__all__ = ["put_keys", "put_keys_plain"]

_HEADER = struct.Struct(">qqqqii")  # begin and end time, begin and end offset, slots, entries
_ENTRY = struct.Struct(">iqii")
_SLOT = struct.Struct(">i")
_END_TIME, _BEGIN_OFFSET, _END_OFFSET, _SLOT_COUNT, _ENTRY_COUNT = 8, 16, 24, 32, 36
_SECONDS_MAX = 2**31 - 1


def put_keys_plain(
    index: Bytes,
    hash_slots: int,
    max_entries: int,
    key_hashes: Int32s,
    physical_offsets: Int64s,
    store_timestamps_ms: Int64s,
    first: int,
) -> int:
    """Put the keys from *first* on and return how many were put.

    ``key_hashes`` int32[k] are 0 or more, ``physical_offsets`` int64[k] are those of the keys'
    records, ``store_timestamps_ms`` int64[k] their store times. Fewer than ``k - first`` are put
    when the file is full: the next file takes the rest. ``index`` uint8 is the whole file; if it is
    too short, nothing is put.
    """
    if len(index) < _file_bytes(hash_slots, max_entries) or hash_slots < 1:
        return 0
    begin, end, begin_offset, end_offset, slots_used, number = _HEADER.unpack_from(index.data)
    number = max(number, 1)
    done = first
    count = min(len(key_hashes), len(physical_offsets), len(store_timestamps_ms))
    while 0 <= done < count and number < max_entries:
        key_hash, offset = int(key_hashes[done]), int(physical_offsets[done])
        time_ms = int(store_timestamps_ms[done])
        slot = INDEX_HEADER_BYTES + key_hash % hash_slots * INDEX_SLOT_BYTES
        (previous,) = _SLOT.unpack_from(index.data, slot)
        if not 0 < previous <= number:
            previous = 0
        seconds = min(max((time_ms - begin) // 1000, 0), _SECONDS_MAX) if begin > 0 else 0
        _ENTRY.pack_into(
            index.data, _entry_position(hash_slots, number), key_hash, offset, seconds, previous
        )
        _SLOT.pack_into(index.data, slot, number)
        if number == 1:
            begin, begin_offset = time_ms, offset
        end, end_offset = time_ms, offset
        slots_used += previous == 0
        number += 1
        done += 1
    if done > first:
        _HEADER.pack_into(index.data, 0, begin, end, begin_offset, end_offset, slots_used, number)
    return done - first


@kernel(put_keys_plain, INT, (OUT_BYTES, INT, INT, IN_INT32S, IN_INT64S, IN_INT64S, INT))
def put_keys(
    index, hash_slots, max_entries, key_hashes, physical_offsets, store_timestamps_ms, first
):
    entries = INDEX_HEADER_BYTES + hash_slots * INDEX_SLOT_BYTES
    if len(index) < entries + max_entries * INDEX_ENTRY_BYTES or hash_slots < 1 or first < 0:
        return 0
    number = max(load_i32(index, _ENTRY_COUNT), 1)
    slots_used = load_i32(index, _SLOT_COUNT)
    done = first
    count = min(len(key_hashes), len(physical_offsets), len(store_timestamps_ms))
    while done < count and number < max_entries:
        time_ms = store_timestamps_ms[done]
        slot = INDEX_HEADER_BYTES + key_hashes[done] % hash_slots * INDEX_SLOT_BYTES
        previous = load_i32(index, slot)
        if previous <= 0 or previous > number:
            previous = 0
            slots_used += 1
        begin = load_i64(index, 0)
        seconds = 0
        if begin > 0 and time_ms > begin:
            seconds = min((time_ms - begin) // 1000, _SECONDS_MAX)
        entry = entries + number * INDEX_ENTRY_BYTES
        store_i32(index, entry, key_hashes[done])
        store_i64(index, entry + 4, physical_offsets[done])
        store_i32(index, entry + 12, seconds)
        store_i32(index, entry + 16, previous)
        store_i32(index, slot, number)
        if number == 1:
            store_i64(index, 0, time_ms)
            store_i64(index, _BEGIN_OFFSET, physical_offsets[done])
        number += 1
        done += 1
    if done > first:
        store_i64(index, _END_TIME, store_timestamps_ms[done - 1])
        store_i64(index, _END_OFFSET, physical_offsets[done - 1])
        store_i32(index, _SLOT_COUNT, slots_used)
        store_i32(index, _ENTRY_COUNT, number)
    return done - first


def _file_bytes(hash_slots: int, max_entries: int) -> int:
    return _entry_position(hash_slots, max_entries)


def _entry_position(hash_slots: int, number: int) -> int:
    return INDEX_HEADER_BYTES + hash_slots * INDEX_SLOT_BYTES + number * INDEX_ENTRY_BYTES
