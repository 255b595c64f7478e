"""Appends of keys to an IndexFile.

Layout: a header of 40 bytes, ``hash_slots`` slots of 4, ``max_entries`` entries of 20, all
big-endian. A slot holds the number of its newest entry; each entry holds the number of the
previous one. Entries count from 1, so the first entry's place is never used. Source: RocketMQ
5.3.3, ``IndexFile.putKey``, ``IndexHeader``.

The entry is written before the slot and the slot before the header: a reader that trusts only
entries below the header's count never follows a slot into an unwritten entry.
"""

from __future__ import annotations

from ._compile import InInt32s, InInt64s, OutBytes, kernel
from .intrinsics import load_i32, load_i64, store_i32, store_i64
from .layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES

__all__ = ["put_keys"]

_END_TIME, _BEGIN_OFFSET, _END_OFFSET, _SLOT_COUNT, _ENTRY_COUNT = 8, 16, 24, 32, 36
_SECONDS_MAX = 2**31 - 1


@kernel
def put_keys(
    index: OutBytes,
    hash_slots: int,
    max_entries: int,
    key_hashes: InInt32s,
    physical_offsets: InInt64s,
    store_timestamps_ms: InInt64s,
    first: int,
) -> int:
    """Put the keys from *first* on and return how many were put.

    ``key_hashes`` int32[k] are 0 or more, ``physical_offsets`` int64[k] are those of the keys'
    records, ``store_timestamps_ms`` int64[k] their store times. Fewer than ``k - first`` are put
    when the file is full: the next file takes the rest. ``index`` uint8 is the whole file; if it is
    too short, nothing is put.
    """
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
