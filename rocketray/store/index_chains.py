"""The chains of an index file as they must be: found from the entries' hashes alone.

An entry names the last one before it with the same hash modulo the slots, 0 for none; a slot names
the newest of its own. So both can be computed, and what stands in a file compared with them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.kernels.layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES

__all__ = ["IndexDamage", "check_chains", "expected_chains"]

_SLOT = np.dtype(">i4")
_ENTRY = np.dtype(
    [("hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
_Int64s = npt.NDArray[np.int64]


class IndexDamage(NamedTuple):
    """What of one index file contradicts its entries: numbers of entries and of slots, ascending.

    Keys whose chain passes through one of them may not be found.
    """

    file: str
    entries: list[int]
    slots: list[int]


def expected_chains(hashes: _Int64s, hash_slots: int) -> tuple[_Int64s, _Int64s]:
    """What entries 1, 2, … with *hashes* int64[n] must name, and which are the newest of a slot.

    int64[n] the entry before each, 0 for none, and int64[slots in use] numbers of entries.
    """
    slots = hashes % hash_slots
    order = np.argsort(slots, kind="stable")
    same = slots[order][1:] == slots[order][:-1]
    previous = np.zeros(len(hashes), np.int64)
    previous[order[1:][same]] = order[:-1][same] + 1
    is_newest = np.append(~same, np.ones(min(len(hashes), 1), np.bool_))
    return previous, order[is_newest] + 1


def check_chains(
    file: str, data: npt.NDArray[np.uint8], hash_slots: int, count: int
) -> IndexDamage:
    """Compare the chains of *count* entries in *data* uint8, a whole file, with those expected.

    Takes some 50 bytes of memory an entry.
    """
    slots_end = INDEX_HEADER_BYTES + hash_slots * INDEX_SLOT_BYTES
    first = slots_end + INDEX_ENTRY_BYTES
    rows = data[first : first + count * INDEX_ENTRY_BYTES].view(_ENTRY)
    hashes = rows["hash"].astype(np.int64)
    previous, newest = expected_chains(hashes, hash_slots)
    heads = np.zeros(hash_slots, np.int64)
    heads[hashes[newest - 1] % hash_slots] = newest
    return IndexDamage(
        file,
        (np.flatnonzero((rows["previous"] != previous) | (hashes < 0)) + 1).tolist(),
        np.flatnonzero(data[INDEX_HEADER_BYTES:slots_end].view(_SLOT) != heads).tolist(),
    )
