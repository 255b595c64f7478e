"""Appends of keys to an IndexFile, and searches along the chains of their hashes.

Layout: a header of 40 bytes, ``hash_slots`` slots of 4, ``max_entries`` entries of 20, all
big-endian. A slot holds the number of its newest entry; each entry holds the number of the
previous one. Entries count from 1, so the first entry's place is never used. Source: RocketMQ
5.3.3, ``IndexFile.putKey``, ``IndexHeader``.

The entry is written before the slot and the slot before the header: a reader that trusts only
entries below the header's count never follows a slot into an unwritten entry.

A search reads many files in one call, newest entry first.
- The files of a store have one size and are mapped at different places, so they are given as
  addresses: the caller keeps each mapped whole while the kernel runs.
- Nothing read from a file is trusted: an entry counts only if its number is within the file and
  below that of the entry that points to it, and its hash belongs to the slot. So a search ends,
  whatever the bytes, and never leaves a file.
- The header's count is not used. A writer updates it once per batch, after the slots, and writes
  each slot after its entry: a reader that stopped at the count would miss all of a chain whose
  newest entries are of that batch.
"""

from __future__ import annotations

from enum import IntEnum

from ._compile import InInt32s, InInt64s, OutBytes, OutInt64s, kernel
from .intrinsics import load_i32, load_i32_at, load_i64, load_i64_at, store_i32, store_i64
from .layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES

# Positions in the header, after the begin time at 0.
_END_TIME, _BEGIN_OFFSET, _END_OFFSET, _SLOT_COUNT, _ENTRY_COUNT = 8, 16, 24, 32, 36
_SECONDS_MAX = 2**31 - 1  # RocketMQ's limit of timeDiff
_PREVIOUS = 16  # the offset of the previous entry's number


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
        # Within the slots for any hash, also a negative one of a damaged frame: the sign is the
        # divisor's, as in Python.
        slot = INDEX_HEADER_BYTES + key_hashes[done] % hash_slots * INDEX_SLOT_BYTES
        previous = load_i32(index, slot)
        # RocketMQ's rule for what counts as an empty slot.
        if previous <= 0 or previous > number:
            previous = 0
            slots_used += 1
        begin = load_i64(index, 0)
        seconds = 0
        # RocketMQ's rules: 0 before the begin, or without one.
        if begin > 0 and time_ms > begin:
            seconds = min((time_ms - begin) // 1000, _SECONDS_MAX)
        entry = entries + number * INDEX_ENTRY_BYTES
        store_i32(index, entry, key_hashes[done])
        store_i64(index, entry + 4, physical_offsets[done])
        store_i32(index, entry + 12, seconds)
        store_i32(index, entry + 16, previous)
        store_i32(index, slot, number)
        # Only now, as in RocketMQ: the first entry's seconds count from the end of the file before.
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


class Place(IntEnum):
    """The progress of a search: the elements of its ``place``."""

    FILE = 0
    """The number of the file being searched; -1 after the last."""
    AFTER = 1
    """The entry after which to continue, 0 to begin with the slot."""
    IS_ASTRAY = 2
    """1 when the entry of AFTER, or the slot, points to no entry of the chain; else 0."""
    ASTRAY_TO = 3
    """The number that it points to in that case."""


_PLACE_FIELDS = len(Place)


@kernel
def search_chains(
    addresses: InInt64s,
    hash_slots: int,
    max_entries: int,
    key_hash: int,
    place: OutInt64s,
    out: OutInt64s,
) -> int:
    """Write the physical offsets of entries with *key_hash* to *out* int64[k]; return their number.

    Continues from *place* int64[len(Place)], file by file from the one in it down to file 0, and
    stores there where it stopped: at the end, when *out* was full, or where a chain was broken. In
    the last case the caller may continue with the file before. ``addresses`` int64[n] are those of
    whole files with *hash_slots* and *max_entries*, oldest first.
    """
    assert len(place) == _PLACE_FIELDS
    slot_count = max(hash_slots, 1)
    entries = INDEX_HEADER_BYTES + slot_count * INDEX_SLOT_BYTES
    slot = key_hash % slot_count
    file, after = min(place[Place.FILE], len(addresses) - 1), place[Place.AFTER]
    place[Place.IS_ASTRAY] = place[Place.ASTRAY_TO] = 0
    count = 0
    while file >= 0:
        address = addresses[file]
        bound = max_entries
        named_at = address + INDEX_HEADER_BYTES + slot * INDEX_SLOT_BYTES
        if after != 0:
            bound = after
            named_at = address + entries + after * INDEX_ENTRY_BYTES + _PREVIOUS
        entry = load_i32_at(named_at)
        while entry != 0:
            at = address + entries + entry * INDEX_ENTRY_BYTES
            is_sound = 0 < entry < bound
            if is_sound:
                entry_hash = load_i32_at(at)
                is_sound = entry_hash == key_hash or (
                    entry_hash >= 0 and entry_hash % slot_count == slot
                )
            is_full = is_sound and entry_hash == key_hash and count == len(out)
            if not is_sound or is_full:
                place[Place.FILE], place[Place.AFTER] = file, after
                if not is_sound:
                    place[Place.IS_ASTRAY], place[Place.ASTRAY_TO] = 1, entry
                return count
            if entry_hash == key_hash:
                out[count] = load_i64_at(at + 4)
                count += 1
            after = bound = entry
            entry = load_i32_at(at + _PREVIOUS)
        after = 0
        file -= 1
    place[Place.FILE], place[Place.AFTER] = -1, 0
    return count
