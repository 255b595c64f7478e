"""The kernel of ``rocketray/kernels/index_search.py`` in plain Python."""

from __future__ import annotations

import ctypes
import struct

from rocketray.kernels._compile import Int64s
from rocketray.kernels.index_search import Place
from rocketray.kernels.layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES

__all__ = ["search_chains"]

_ENTRY = struct.Struct(">iqii")  # hash, physical offset, seconds, previous
_SLOT = struct.Struct(">i")
_PREVIOUS = 16  # the offset of the previous entry's number


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
