"""Searches for a hash along its chains through many IndexFiles in one call, newest entry first.

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

from ._compile import InInt64s, OutInt64s, kernel
from .intrinsics import load_i32_at, load_i64_at
from .layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES

__all__ = ["Place", "search_chains"]

_PREVIOUS = 16  # the offset of the previous entry's number


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
                found = load_i32_at(at)
                is_sound = found == key_hash or (found >= 0 and found % slot_count == slot)
            is_full = is_sound and found == key_hash and count == len(out)
            if not is_sound or is_full:
                place[Place.FILE], place[Place.AFTER] = file, after
                if not is_sound:
                    place[Place.IS_ASTRAY], place[Place.ASTRAY_TO] = 1, entry
                return count
            if found == key_hash:
                out[count] = load_i64_at(at + 4)
                count += 1
            after = bound = entry
            entry = load_i32_at(at + _PREVIOUS)
        after = 0
        file -= 1
    place[Place.FILE], place[Place.AFTER] = -1, 0
    return count
