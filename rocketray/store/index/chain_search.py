"""Searches for the hash of a key in the index files of a store.

The set of files is fixed when a search is created, and their memory stays mapped as long as
the search lives. So beside a writer that creates and drops files, a reader uses the current
search, and none of its files is unmapped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np

from rocketray.kernels.index_search import Place, search_chains

from .index_file import IndexFile

__all__ = ["ChainSearch"]

_LOG = logging.getLogger(__name__)
_AT_ONCE = 64  # physical offsets per kernel call: as many as a query returns


class ChainSearch:
    """Searches of a fixed set of files, for any number of threads."""

    def __init__(self, files: Sequence[IndexFile]) -> None:
        """Search *files*, which are open, of one size, and ordered from the oldest."""
        self._files = tuple(files)
        self._memory = tuple(file.data for file in files)  # keeps it mapped
        self._addresses = np.array([data.ctypes.data for data in self._memory], np.int64)

    def find(self, key_hash: int) -> Iterator[int]:
        """Yield the physical offsets of all entries with *key_hash*, newest first.

        A chain that leads out of its file, not backwards, or to another slot's entry is followed up
        to that place, and the damage is reported to the file.
        """
        if not self._files:
            return
        sizes = self._files[0].hash_slots, self._files[0].max_entries
        place = np.array([len(self._files) - 1, 0, 0, 0], np.int64)
        out = np.empty(_AT_ONCE, np.int64)
        file = place[Place.FILE]
        while file >= 0:
            count = search_chains(self._addresses, *sizes, key_hash, place, out)
            yield from out[:count].tolist()
            file, after, is_astray, astray_to = place.tolist()
            if is_astray:
                self._files[file].report_damage(key_hash % sizes[0], after, astray_to)
                place[:] = file - 1, 0, 0, 0
                file -= 1
