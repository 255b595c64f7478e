"""Checksums of the written part of each file of a sequence, for the next opening of a store.

RocketMQ's queue files have no checksum of their own. Their bytes below the end do not change while
the store is open, so a CRC-32 of them is extended as they are flushed, while they are in memory. A
clean stop writes the sums down (recovery/clean_stop.py). The next opening reads the files once, and
compares.

Threads: one at a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from .mapped_file_queue import MappedFileQueue, segment_name


class WrittenSums:
    """For each file of *files* the number of its bytes that were written, and their CRC-32."""

    def __init__(self, files: MappedFileQueue) -> None:
        """Begin without sums; no file is read."""
        self._files = files
        self._end = 0
        self._sums: dict[int, tuple[int, int]] = {}

    def cover(self, end: int) -> None:
        """Extend the sums to all bytes below the offset *end*, which no longer change."""
        if end <= self._end:
            return
        self._end = end
        for start in self._files.starts:
            done, crc = self._sums.get(start, (0, 0))
            size = min(end - start, self._files.segment_bytes)
            if size > done:
                self._sums[start] = size, zlib.crc32(self._read(start, done, size), crc)

    def table(self) -> dict[str, tuple[int, int]]:
        """Return the sums by the names of the files that there are."""
        starts = [start for start in self._files.starts if start in self._sums]
        return {segment_name(start): self._sums[start] for start in starts}

    def restore(self, table: Mapping[str, object]) -> list[str]:
        """Compare the files with a *table* that was written down; return the names that differ.

        The sums of all others are valid from now on. A file that is not in *table* has none.
        """
        changed = []
        for start in self._files.starts:
            name = segment_name(start)
            match table.get(name):
                case None:
                    continue
                case [int(size), int(crc)] if 0 <= size <= self._files.segment_bytes:
                    if zlib.crc32(self._read(start, 0, size)) == crc:
                        self._sums[start] = size, crc
                        continue
            changed.append(name)
        return changed

    def clear(self) -> None:
        """Forget all sums, because the files are going to be changed."""
        self._end = 0
        self._sums.clear()

    def _read(self, start: int, position: int, end: int) -> memoryview:
        """Return the bytes from *position* to *end* of a file.

        A file is read from its begin without mapping it: there may be thousands.
        """
        file = self._files.file(start) if position else None
        if file is not None:
            return file.data[position:end].data
        return memoryview(self._files.read(start, end))[position:]
