"""Read-only maps of the segments of one directory; the most recently used ones are kept.

The file of an offset is found by arithmetic; the directory is listed only to explain an error.
Closing a map never invalidates an array: memory in use is freed with its last array.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from rocketray.errors import OffsetOutOfRangeError

from .file_system import SYSTEM_FILES, FileSystem
from .mapped_file import MappedFile
from .mapped_file_queue import segment_name

_KEPT_SEGMENTS = 16  # of a log, 1 GiB of addresses; the pages are the system's


class SegmentCache:
    """The mapped segments of a directory, of one size. For one thread at a time."""

    def __init__(
        self,
        directory: Path,
        segment_bytes: int,
        limit: int = _KEPT_SEGMENTS,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Start without maps; *directory* may be created later."""
        self.directory = directory
        self.segment_bytes = segment_bytes
        self._limit = limit
        self._file_system = file_system
        self._files: OrderedDict[int, MappedFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, offset: int) -> MappedFile:
        """Return the segment that holds *offset*.

        Raises:
            OffsetOutOfRangeError: there is no such file, or not any more.
            CorruptRecordError: the file has another size.
        """
        start = offset - offset % self.segment_bytes
        file = self._files.get(start)
        if file is None:
            file = self._files[start] = self._map(start)
            if len(self._files) > self._limit:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(start)
        return file

    def let_go_before(self, offset: int) -> None:
        """Unmap the segments that end at or before *offset*, to free the space of deleted files."""
        for start in [start for start in self._files if start + self.segment_bytes <= offset]:
            self._files.pop(start).close()

    def close(self) -> None:
        """Close all maps; the cache can be used again."""
        while self._files:
            self._files.popitem()[1].close()

    def _map(self, start: int) -> MappedFile:
        try:
            path = self.directory / segment_name(start)
            return MappedFile(
                path, start, self.segment_bytes, read_only=True, file_system=self._file_system
            )
        except FileNotFoundError:
            names = self._file_system.names(self.directory)
            starts = [int(name) for name in names if name.isdecimal()]
            end = starts[-1] + self.segment_bytes if starts else 0
            where = f"{self.directory}, counted in bytes"
            raise OffsetOutOfRangeError(where, start, starts[0] if starts else 0, end) from None
