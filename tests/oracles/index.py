"""The kernel of ``rocketray/kernels/index.py`` in plain Python."""

from __future__ import annotations

import struct

from rocketray.kernels._compile import Bytes, Int32s, Int64s
from rocketray.kernels.layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES

__all__ = ["put_keys"]

_HEADER = struct.Struct(">qqqqii")  # begin and end time, begin and end offset, slots, entries
_ENTRY = struct.Struct(">iqii")
_SLOT = struct.Struct(">i")
_SECONDS_MAX = 2**31 - 1


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
