"""The kernels of ``rocketray/kernels/index.py`` in plain Python."""

from __future__ import annotations

import ctypes
import struct

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.index import Place
from rocketray.kernels.layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES

_HEADER = struct.Struct(">qqqqii")  # begin and end time, begin and end offset, slots, entries
_SECONDS_MAX = 2**31 - 1
_ENTRY = struct.Struct(">iqii")  # hash, physical offset, seconds, previous
_SLOT = struct.Struct(">i")
_PREVIOUS = 16  # the offset of the previous entry's number


def put_keys(
    index: Bytes,
    hash_slots: int,
    max_entries: int,
    key_hashes: Int32s,
    physical_offsets: Int64s,
    store_timestamps_ms: Int64s,
    first: int,
) -> int:
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


def _file_bytes(hash_slots: int, max_entries: int) -> int:
    return _entry_position(hash_slots, max_entries)


def _entry_position(hash_slots: int, number: int) -> int:
    return INDEX_HEADER_BYTES + hash_slots * INDEX_SLOT_BYTES + number * INDEX_ENTRY_BYTES


def search_chains(
    addresses: Int64s, hash_slots: int, max_entries: int, key_hash: int, place: Int64s, out: Int64s
) -> int:
    slot_count = max(hash_slots, 1)
    entries = INDEX_HEADER_BYTES + slot_count * INDEX_SLOT_BYTES
    slot = INDEX_HEADER_BYTES + key_hash % slot_count * INDEX_SLOT_BYTES
    file, after = place[: Place.IS_ASTRAY].tolist()
    count = 0
    for number in range(min(file, len(addresses) - 1), -1, -1):
        address = int(addresses[number])
        at = after * INDEX_ENTRY_BYTES + entries + _PREVIOUS if after else slot
        bound = after or max_entries
        (entry,) = _SLOT.unpack(ctypes.string_at(address + at, _SLOT.size))
        while entry != 0:
            found = -1
            if 0 < entry < bound:
                raw = ctypes.string_at(address + entries + entry * INDEX_ENTRY_BYTES, _ENTRY.size)
                found, physical_offset, _, previous = _ENTRY.unpack(raw)
            if found < 0 or found % slot_count != key_hash % slot_count:
                place[:] = number, after, 1, entry
                return count
            if found == key_hash:
                if count == len(out):
                    place[:] = number, after, 0, 0
                    return count
                out[count] = physical_offset
                count += 1
            after = bound = entry
            entry = previous
        after = 0
    place[:] = -1, 0, 0, 0
    return count
