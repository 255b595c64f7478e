"""Searching the index files of a store for the hash of a key.

The files that are searched are fixed when a search is made, and their memory stays mapped as long
as it lives: beside a writer that makes files and lets old ones go, a reader takes the search that
is there, and no file is unmapped under it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np

from rocketray.kernels.index_search import Place, search_chains

from .index_file import IndexFile

__all__ = ["ChainSearch"]

_LOG = logging.getLogger(__name__)
_AT_ONCE = 64  # physical offsets asked of the kernel in one call: as many as a query returns


class ChainSearch:
    """Searches of the same files, for any number of threads."""

    def __init__(self, files: Sequence[IndexFile]) -> None:
        """Search *files*, which are open, of one size, and in order from the oldest on."""
        self._files = tuple(files)
        self._memory = tuple(file.data for file in files)  # keeps it mapped
        self._addresses = np.array([data.ctypes.data for data in self._memory], np.int64)

    def find(self, key_hash: int) -> Iterator[int]:
        """The physical offsets of all entries with *key_hash*, newest first.

        A chain that leads out of its file, not backwards, or to another slot's entry is followed to
        that place, and the file is told.
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
