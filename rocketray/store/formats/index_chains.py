"""The correct chains of an index file, computed from the entries' hashes alone.

An entry names the previous one with the same hash modulo the slots, 0 for none; a slot names
its newest entry. So both can be computed, and the content of a file compared with them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["expected_chains"]

_Int64s = npt.NDArray[np.int64]


def expected_chains(hashes: _Int64s, hash_slots: int) -> tuple[_Int64s, _Int64s]:
    """Return the predecessor of each entry 1, 2, … with *hashes* int64[n], and each slot's newest.

    int64[n] the entry before each, 0 for none, and int64[slots in use] numbers of entries.
    """
    slots = hashes % hash_slots
    order = np.argsort(slots, kind="stable")
    same = slots[order][1:] == slots[order][:-1]
    previous = np.zeros(len(hashes), np.int64)
    previous[order[1:][same]] = order[:-1][same] + 1
    is_newest = np.append(~same, np.ones(min(len(hashes), 1), np.bool_))
    return previous, order[is_newest] + 1
