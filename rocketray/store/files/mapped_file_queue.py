"""A row of mapped files of one size that together are one long space of bytes.

A file is named by the offset of its first byte, 20 digits; so the file of an offset is found by
arithmetic. Files follow each other without a gap, from wherever old ones were deleted.

After a crash a file may be short, for its size is on disk only when it was flushed: such files
are mended, which makes them whole with zeros, and what they hold now is for their owner to judge.

Threads: one writer. ``prepare_next``, ``flush`` and ``remove_forgotten`` may run beside it in other
threads.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from pathlib import Path

from rocketray.errors import CorruptRecordError

from .directories import make_directory
from .file_system import SYSTEM_FILES, FileSystem
from .mapped_file import HALF_MADE_SUFFIX, MappedFile, create_file, keep_aside

__all__ = ["MappedFileQueue", "Mend", "segment_name"]

_BROKEN = "broken"
_NAME = re.compile(r"\d{20}\Z")
_SEARCH_BYTES = 1 << 20
_MISSING_MAX = 256  # files that are made in gaps; what is farther away is a stray file
_OFFSET_MAX = 1 << 62


def segment_name(start: int) -> str:
    """The name of the file whose first byte has the offset *start*."""
    return f"{start:020d}"


class Mend(Enum):
    """Which files are made whole, with zeros, when a directory is opened."""

    NOTHING = "none"
    SHORT = "those that are too short, as after a power failure"
    SHORT_AND_MISSING = "those too, and those that are missing between others"


class MappedFileQueue:
    """The files of one directory. What was written, and up to where, its owner knows."""

    def __init__(
        self,
        directory: Path,
        segment_bytes: int,
        *,
        read_only: bool,
        mend: Mend = Mend.NOTHING,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Find the files; each is mapped when it is first used.

        *mend* says which files are made whole with zeros.

        Raises:
            CorruptRecordError: a file has another size, or one between two others is missing.
        """
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.read_only = read_only
        self._file_system = file_system
        self._files: dict[int, MappedFile] = {}
        self._forgotten: list[int] = []
        self._to_close: list[MappedFile] = []
        self._lock = threading.Lock()
        self.mended: list[int] = []
        """The first offsets of the files that were mended."""
        self._starts = self._find()
        self._check_multiples()
        if mend is not Mend.NOTHING:
            self._mend_short()
        if mend is Mend.SHORT_AND_MISSING:
            self._make_missing()
        self._check_gaps()
        self._names_changed = bool(self._starts)  # who made them may have died before a flush

    @property
    def starts(self) -> list[int]:
        """The first offsets of all files, ascending."""
        return list(self._starts)

    @property
    def min_offset(self) -> int:
        """The first offset that there is a file for; 0 without files."""
        return self._starts[0] if self._starts else 0

    @property
    def end(self) -> int:
        """The offset behind the last file; 0 without files."""
        return self._starts[-1] + self.segment_bytes if self._starts else 0

    def start_of(self, offset: int) -> int:
        """The first offset of the file that *offset* belongs into."""
        return offset - offset % self.segment_bytes

    def file(self, offset: int) -> MappedFile | None:
        """The file that holds *offset*, or None when there is none."""
        start = offset - offset % self.segment_bytes
        found = self._files.get(start)
        if found is None and self.min_offset <= start < self.end:
            found = self._open(start)
        return found

    def files_between(self, start: int, end: int) -> Iterator[MappedFile]:
        """The files that hold a byte from *start* up to, not including, *end*."""
        for first in self.starts:
            if first < end and first + self.segment_bytes > start:
                yield self._open(first)

    def ensure(self, offset: int) -> MappedFile:
        """The file that holds *offset*, made if need be; it follows the last one.

        Raises:
            StoreFullError: there is no room for it; nothing changed.
        """
        start = offset - offset % self.segment_bytes
        found = self._files.get(start)
        if found is not None:
            return found
        with self._lock:
            if start not in self._starts:
                assert not self._starts or start == self.end
                self._create(start)
        return self._open(start)

    def prepare_next(self, written: int) -> None:
        """Make the next file and touch its pages, once the one that *written* is in is half full.

        For a thread beside the writer, who then rolls without waiting. Without files nothing is
        prepared: an empty queue keeps no file.
        """
        if 2 * (written % self.segment_bytes) < self.segment_bytes:
            return
        with self._lock:
            start = self.end
            if not self._starts or start > self.start_of(written) + self.segment_bytes:
                return
            self._create(start)
        self._open(start).populate()

    def flush(self, start: int, end: int) -> None:
        """Bring what stands from *start* to *end* to disk, and the files' names."""
        for file in self.files_between(start, end):
            file.flush()
        self._sync_names()

    def cut(self, end: int, *, keep: bool) -> int:
        """Forget everything from *end* on; returns how many bytes that were not zero stood there.

        With *keep* they go to a file first, ``broken/<segment>.broken-<offset>``: in a directory
        of its own, for RocketMQ takes every file beside a segment for one.
        The file that *end* belongs into is zero from there; those behind it are removed.
        """
        count = 0
        for start in reversed(self.starts):
            if start + self.segment_bytes > end:
                count += self._cut_file(self._open(start), max(end - start, 0), keep=keep)
            if start > end:
                self._remove(start)
        return count

    def clear(self) -> None:
        """Remove every file."""
        self.cut(-1, keep=False)

    def forget_before(self, offset: int) -> None:
        """Let the files that end at or before *offset* be no part of this any more; never the last.

        They stay on disk until :meth:`remove_forgotten`: that takes its time, this does not.
        """
        with self._lock:
            gone = [start for start in self._starts[:-1] if start + self.segment_bytes <= offset]
            self._starts = self._starts[len(gone) :]
            self._to_close += [self._files.pop(start) for start in gone if start in self._files]
            self._forgotten += gone

    def remove_forgotten(self) -> None:
        """Remove the forgotten files, oldest first, and what fails again at the next call.

        A name is gone on disk before the next one goes, so no crash leaves a gap in the row.
        """
        while self._to_close:
            self._to_close.pop().close()
        while self._forgotten:
            self._file_system.unlink(self.directory / segment_name(self._forgotten[0]))
            self._file_system.sync(self.directory)
            del self._forgotten[0]

    def close(self) -> None:
        """Unmap all files."""
        for file in (*self._files.values(), *self._to_close):
            file.close()
        self._files.clear()
        self._to_close.clear()

    def _find(self) -> list[int]:
        names = self._file_system.names(self.directory)
        if not self.read_only:
            for half_made in (name for name in names if name.endswith(HALF_MADE_SUFFIX)):
                self._file_system.unlink(self.directory / half_made)
        starts = [int(name) for name in names if _NAME.match(name)]
        if self.read_only and starts and not self._size(starts[-1]):
            starts.pop()  # a broker that is at work, or died, had made no more than the name
        return starts

    def _size(self, start: int) -> int:
        return self._file_system.size(self.directory / segment_name(start))

    def _mend_short(self) -> None:
        """Make files that are too short whole, oldest first."""
        for start in self._starts:
            path = self.directory / segment_name(start)
            if self._file_system.size(path) < self.segment_bytes:
                file = self._file_system.open(path, read_only=False)
                try:
                    file.allocate(0, self.segment_bytes)
                finally:
                    file.close()
                self.mended.append(start)

    def _make_missing(self) -> None:
        """Make the files that are missing between others, oldest first."""
        gaps = [
            range(start + self.segment_bytes, following, self.segment_bytes)
            for start, following in pairwise(self._starts)
        ]
        if sum(map(len, gaps)) > _MISSING_MAX:
            far = max(gaps, key=len).stop
            raise CorruptRecordError(
                str(self.directory),
                far,
                f"{sum(map(len, gaps))} files are missing between others, more than are made again "
                f"({_MISSING_MAX}); if {segment_name(far)} is no file of it, move it away",
            )
        for start in (start for gap in gaps for start in gap):
            path = self.directory / segment_name(start)
            create_file(self._file_system, path, self.segment_bytes, self.segment_bytes)
            self.mended.append(start)
        self._starts = sorted({*self._starts, *self.mended})

    def _check_multiples(self) -> None:
        for start in self._starts:
            if start % self.segment_bytes or start > _OFFSET_MAX:
                raise CorruptRecordError(
                    str(self.directory / segment_name(start)),
                    start,
                    f"its name is no multiple of the file size {self.segment_bytes}, or too large; "
                    "move it away if it is no file of the store, or open the store with the sizes "
                    "it was made with",
                )

    def _check_gaps(self) -> None:
        for start, following in pairwise(self._starts):
            if following != start + self.segment_bytes:
                raise CorruptRecordError(
                    str(self.directory),
                    start,
                    f"the file {segment_name(start + self.segment_bytes)} is missing; "
                    "restore it from a copy, or have the rest recovered: rocketray store recover",
                )

    def _create(self, start: int) -> None:
        """Make the file after the last one, whose name is on disk then.

        So no power failure takes a file and leaves a later one, as if the first had been deleted.
        """
        make_directory(self._file_system, self.directory)
        self._sync_names()
        path = self.directory / segment_name(start)
        create_file(self._file_system, path, self.segment_bytes, self.segment_bytes)
        self._starts.append(start)
        self._names_changed = True

    def _sync_names(self) -> None:
        if self._names_changed:
            self._names_changed = False  # before it, for names that come meanwhile
            try:
                self._file_system.sync(self.directory)
            except BaseException:
                self._names_changed = True
                raise

    def _open(self, start: int) -> MappedFile:
        with self._lock:
            file = self._files.get(start)
            if file is None:
                path = self.directory / segment_name(start)
                file = MappedFile(
                    path,
                    start,
                    self.segment_bytes,
                    read_only=self.read_only,
                    file_system=self._file_system,
                )
                if not self.read_only and start == self._starts[-1]:
                    file.allocate(0, self.segment_bytes)  # a copied file may have holes
                self._files[start] = file
            return file

    def _cut_file(self, file: MappedFile, position: int, *, keep: bool) -> int:
        """Zero *file* from *position*; what was not zero is kept aside first, if asked for."""
        tail = file.data[position:]
        blocks = range(0, len(tail), _SEARCH_BYTES)
        dirty = [at for at in blocks if tail[at : at + _SEARCH_BYTES].any()]
        if not dirty:
            return 0
        rest = tail[: dirty[-1] + _SEARCH_BYTES].tobytes().rstrip(b"\0")
        if keep:
            beside = self.directory / _BROKEN
            make_directory(self._file_system, beside)
            name = f"{file.path.name}.broken-{file.start + position}"
            keep_aside(self._file_system, beside / name, rest)
        tail[: len(rest)] = 0
        file.flush()
        return len(rest)

    def _remove(self, start: int) -> None:
        with self._lock:
            self._starts.remove(start)
            self._names_changed = True
            file = self._files.pop(start, None)
        if file is not None:
            file.close()
            self._file_system.unlink(file.path)
