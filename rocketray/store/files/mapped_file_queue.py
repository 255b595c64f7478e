"""A sequence of mapped files of one size that together are one long range of bytes.

- A file is named by the offset of its first byte, 20 digits, so the file of an offset is found by
  arithmetic. Files follow each other without a gap, starting behind the deleted ones.
- After a crash a file may be short, because its size is durable only after a flush. Such files are
  repaired: extended with zeros to full size. Their owner decides which content is valid.
- Any other file of a wrong size was damaged. The writer refuses it, unless it is to be repaired:
  then a file that is too long is cut to its size, and what was behind is kept aside.
- Threads: one writer. ``prepare_next``, ``flush`` and ``remove_forgotten`` may run beside it in
  other threads.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from pathlib import Path

from rocketray.errors import CorruptRecordError

from .file_system import SYSTEM_FILES, FileSystem, make_directory
from .mapped_file import MappedFile, create_file, keep_aside, remove_half_made

_LOG = logging.getLogger(__name__)
_BROKEN = "broken"
_NAME = re.compile(r"\d{20}\Z")
_SEARCH_BYTES = 1 << 20  # looked at in one step for bytes that are not zero
# A file gets blocks for three times what it has, at least 64 KiB and at most 16 MiB: it grows to 64
# KiB, 256 KiB, 1, 4 and 16 MiB, and then by 16 MiB. So an empty queue takes little, and each step,
# a pass through the slow path of an append, is rare.
_AHEAD_FACTOR, _AHEAD_MIN_BYTES, _AHEAD_MAX_BYTES = 3, 1 << 16, 1 << 24
_MISSING_MAX = 256  # files created in gaps; a file beyond such a gap is a stray file
_OFFSET_MAX = 1 << 62  # so that an offset and a size have a sum below 2**63


def segment_name(start: int) -> str:
    """Return the name of the file whose first byte has the offset *start*."""
    return f"{start:020d}"


class Repair(Enum):
    """The files that are repaired when a directory is opened."""

    NOTHING = "none"
    SHORT = "files that are too short, as after a power failure"
    ALL = "files that are too short, too long, or missing between others"


def rewrite_files(files: MappedFileQueue, start: int, end: int) -> None:
    """Have the next flush write the bytes from *start* to *end*, whatever failed; for recovery."""
    for file in files.files_between(start, end):
        stop = min(end - file.start, file.size)
        file.reserve(stop, 0)  # a copied file may be sparse
        file.rewrite(max(start - file.start, 0), stop)


class MappedFileQueue:
    """The files of one directory. The owner knows which part of them was written."""

    def __init__(
        self,
        directory: Path,
        segment_bytes: int,
        *,
        read_only: bool,
        repair: Repair = Repair.NOTHING,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Find the files; each is mapped on first use.

        *repair* selects the files that are repaired.

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
        # Of the lists of files, which the writer and the threads beside it change; it is held while
        # a file is created or mapped, and no other lock is taken under it.
        self._lock = threading.Lock()
        self.repaired: list[int] = []
        """The first offsets of the files that were extended with zeros, or created."""
        self._starts = self._find()
        # Before any repair: a stray file, which a copy left there, is to be refused and not
        # extended.
        self._check_multiples()
        if repair is not Repair.NOTHING:
            self._repair_short()
        if repair is Repair.ALL:
            self._cut_long()
            self._make_missing()
        self._check_gaps()
        if not read_only:
            self._check_sizes()
        self._names_changed = bool(self._starts)  # their creator may have died before a flush
        self._unsynced = set(self.repaired)
        """The files whose sizes may not be durable: no flush has reached them."""
        if repair is not Repair.NOTHING:
            self._unsynced |= set(self._starts[-2:])  # a written one, and one that was prepared

    @property
    def starts(self) -> list[int]:
        """The first offsets of all files, ascending."""
        return list(self._starts)

    @property
    def min_offset(self) -> int:
        """The first offset that has a file; 0 without files."""
        return self._starts[0] if self._starts else 0

    @property
    def end(self) -> int:
        """The offset behind the last file; 0 without files."""
        return self._starts[-1] + self.segment_bytes if self._starts else 0

    def start_of(self, offset: int) -> int:
        """Return the first offset of the file of *offset*, whether there is one or not."""
        return offset - offset % self.segment_bytes

    def file(self, offset: int) -> MappedFile | None:
        start = offset - offset % self.segment_bytes
        found = self._files.get(start)
        if found is None and self.min_offset <= start < self.end:
            found = self._open(start)
        return found

    def read(self, start: int, limit: int) -> bytes:
        """Return the first *limit* bytes of the file that begins at *start*, without mapping it."""
        return self._file_system.read(self.directory / segment_name(start), limit)

    def files_between(self, start: int, end: int) -> Iterator[MappedFile]:
        """Yield the files that hold a byte from *start* up to, not including, *end*."""
        for first in self.starts:
            if first < end and first + self.segment_bytes > start:
                yield self._open(first)

    def ensure(self, offset: int, size: int) -> MappedFile:
        """Return the file that holds *offset*, created behind the last one if needed.

        It has blocks for *size* bytes from there, as far as it reaches, and for some more: a file
        without messages takes no space, and one that grows is seldom extended. Files that are
        skipped are created too, without blocks.

        Raises:
            StoreFullError: there is no space for it; nothing was written.
        """
        start = offset - offset % self.segment_bytes
        end = min(offset - start + size, self.segment_bytes)
        ahead = min(max(_AHEAD_FACTOR * end, _AHEAD_MIN_BYTES), _AHEAD_MAX_BYTES)
        file = self._files.get(start)
        if file is None:
            with self._lock:
                if start not in self._starts:
                    assert not self._starts or start >= self.end
                    behind = self.end if self._starts else start
                    # Only behind a gap of queue offsets (queue_gaps.py). Their sizes are synced
                    # here, as no flush reaches files without content.
                    for skipped in range(behind, start, self.segment_bytes):
                        self._create(skipped, 0)
                        self._file_system.sync(self.directory / segment_name(skipped))
                    self._create(start, min(end + ahead, self.segment_bytes))
            file = self._open(start)
        file.reserve(end, ahead)
        return file

    def prepare_next(self, written: int) -> None:
        """Create the next file and touch its pages, once the file of *written* is half full.

        For a thread beside the writer, so that the writer rolls without waiting. Without files
        nothing is prepared: an empty queue keeps no file.
        """
        if 2 * (written % self.segment_bytes) < self.segment_bytes:
            return
        with self._lock:
            start = self.end
            # Without files, or where an earlier call has created it.
            if not self._starts or start > self.start_of(written) + self.segment_bytes:
                return
            self._create(start, self.segment_bytes)
        file = self._open(start)
        file.reserve(self.segment_bytes, 0)
        file.populate()

    def flush(self, start: int, end: int) -> None:
        """Sync the bytes from *start* to *end* to disk, and the files' names."""
        for file in self.files_between(start, end):
            file.flush()
            self._unsynced.discard(file.start)
        self._sync_names()

    def sync_sizes(self) -> None:
        """Make the sizes of all files durable: a file without content is in no flush.

        Before a clean stop, after which a file of another size counts as damaged.
        """
        for start in sorted(self._unsynced.intersection(self._starts)):
            self._file_system.sync(self.directory / segment_name(start))
        self._unsynced.clear()
        self._sync_names()

    def cut(self, end: int, *, keep: bool) -> int:
        """Discard everything from *end* on; return its size in bytes, without trailing zeros.

        With *keep* they are first copied to ``broken/<segment>.broken-<offset>``: a directory of
        its own, because RocketMQ takes every file beside a segment for a segment. The file of *end*
        is zero from there; the files behind it are removed. At -1 nothing is left.
        """
        count = 0
        # Newest first: a crash in between leaves a shorter sequence, and no gap in it.
        for start in reversed(self.starts):
            if start + self.segment_bytes > end:
                count += self._cut_file(self._open(start), max(end - start, 0), keep=keep)
            if start > end:
                self._remove(start)
        return count

    def forget_before(self, offset: int) -> None:
        """Forget the files that end at or before *offset*, except the last file.

        They stay on disk until :meth:`remove_forgotten`, which is slow; this call is not.
        """
        with self._lock:
            # Only lists change under the lock; the writer does not wait for the disk.
            gone = [start for start in self._starts[:-1] if start + self.segment_bytes <= offset]
            self._starts = self._starts[len(gone) :]
            self._to_close += [self._files.pop(start) for start in gone if start in self._files]
            self._forgotten += gone

    def remove_forgotten(self) -> None:
        """Remove the forgotten files, oldest first; a failed removal is retried by the next call.

        A removed name is durable before the next file is removed, so no crash leaves a gap.
        """
        while self._to_close:
            self._to_close.pop().close()
        while self._forgotten:
            self._file_system.unlink(self.directory / segment_name(self._forgotten[0]))
            self._file_system.sync(self.directory)
            del self._forgotten[0]

    def close(self) -> None:
        """Unmap all files, each when its last array is gone."""
        for file in (*self._files.values(), *self._to_close):
            file.close()
        self._files.clear()
        self._to_close.clear()

    def _find(self) -> list[int]:
        if not self.read_only:
            remove_half_made(self._file_system, self.directory)
        names = self._file_system.names(self.directory)
        starts = [int(name) for name in names if _NAME.match(name)]
        if self.read_only and starts:
            newest = self.directory / segment_name(starts[-1])
            if not self._file_system.size(newest):
                starts.pop()  # a running or crashed broker had created only the name
        return starts

    def _repair_short(self) -> None:
        """Extend files that are too short with zeros, oldest first."""
        for start in self._starts:
            path = self.directory / segment_name(start)
            if self._file_system.size(path) < self.segment_bytes:
                file = self._file_system.open(path, read_only=False)
                try:
                    file.allocate(0, self.segment_bytes)
                finally:
                    file.close()
                self.repaired.append(start)

    def _cut_long(self) -> None:
        """Cut files that are too long to their size; what was behind is kept aside.

        A file that is longer than two is left as it is, and refused.
        """
        for start in self._starts:
            path = self.directory / segment_name(start)
            size = self._file_system.size(path)
            # What is kept aside is read into memory, so it has a limit.
            if self.segment_bytes < size <= 2 * self.segment_bytes:
                _LOG.warning(
                    "%s: %d bytes where %d are expected; it is cut", path, size, self.segment_bytes
                )
                surplus = self.read(start, size)[self.segment_bytes :]
                self._keep(path, start + self.segment_bytes, surplus.rstrip(b"\0"))
                file = self._file_system.open(path, read_only=False)
                try:
                    file.cut(self.segment_bytes)
                    file.sync()
                finally:
                    file.close()

    def _make_missing(self) -> None:
        """Create the files that are missing between others, oldest first."""
        gaps = [
            range(start + self.segment_bytes, following, self.segment_bytes)
            for start, following in pairwise(self._starts)
        ]
        if sum(map(len, gaps)) > _MISSING_MAX:
            far = max(gaps, key=len).stop
            raise CorruptRecordError(
                str(self.directory),
                far,
                f"{sum(map(len, gaps))} files are missing between others, and at most "
                f"{_MISSING_MAX} are recreated; if {segment_name(far)} does not belong to the "
                "store, move it away",
            )
        for start in (start for gap in gaps for start in gap):
            path = self.directory / segment_name(start)
            create_file(self._file_system, path, self.segment_bytes, self.segment_bytes)
            self.repaired.append(start)
        self._starts = sorted({*self._starts, *self.repaired})

    def _check_multiples(self) -> None:
        for start in self._starts:
            if start % self.segment_bytes or start > _OFFSET_MAX:
                raise CorruptRecordError(
                    str(self.directory / segment_name(start)),
                    start,
                    f"its name is not a multiple of the file size {self.segment_bytes}, or too "
                    "large; move it away if it does not belong to the store, or open the store "
                    "with the sizes it was created with",
                )

    def _check_gaps(self) -> None:
        for start, following in pairwise(self._starts):
            if following != start + self.segment_bytes:
                raise CorruptRecordError(
                    str(self.directory),
                    start,
                    f"the file {segment_name(start + self.segment_bytes)} is missing; "
                    "restore it from a copy, or recover the rest: rocketray store recover",
                )

    def _check_sizes(self) -> None:
        for start in self._starts:
            path = self.directory / segment_name(start)
            size = self._file_system.size(path)
            if size != self.segment_bytes:
                remedy = "recover the rest: rocketray store recover"
                if size > 2 * self.segment_bytes:
                    remedy = f"cut it: truncate --size={self.segment_bytes}"
                raise CorruptRecordError(
                    str(path),
                    start,
                    f"the file has {size} bytes where {self.segment_bytes} are expected; restore it "
                    f"from a copy, or {remedy}",
                )

    def _create(self, start: int, allocated_bytes: int) -> None:
        """Create the file after the last one; its name is durable on return.

        So a power failure cannot lose a file and keep a later one, as if the first had been
        deleted.
        """
        make_directory(self._file_system, self.directory)
        self._sync_names()
        path = self.directory / segment_name(start)
        create_file(self._file_system, path, self.segment_bytes, allocated_bytes)
        self._unsynced.add(start)
        self._starts.append(start)
        self._names_changed = True

    def _sync_names(self) -> None:
        if self._names_changed:
            self._names_changed = False  # set before, for names that are added meanwhile
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
                self._files[start] = file
            return file

    def _cut_file(self, file: MappedFile, position: int, *, keep: bool) -> int:
        """Zero *file* from *position*, with *keep* after saving its bytes; return their number."""
        tail = file.data[position : file.data_end()]
        blocks = range(0, len(tail), _SEARCH_BYTES)
        dirty = [at for at in blocks if tail[at : at + _SEARCH_BYTES].any()]
        if not dirty:
            return 0
        rest = tail[: dirty[-1] + _SEARCH_BYTES].tobytes().rstrip(b"\0")
        file.reserve(position + len(rest), 0)  # a copied file may be sparse
        if keep:
            # Durable before the bytes are zeroed: a crash leaves them in one place or in both.
            self._keep(file.path, file.start + position, rest)
        tail[: len(rest)] = 0
        file.flush()
        return len(rest)

    def _keep(self, path: Path, offset: int, content: bytes) -> None:
        """Keep *content*, which was at *offset* of the file *path*, in a file of its own."""
        if content:
            beside = self.directory / _BROKEN
            make_directory(self._file_system, beside)
            keep_aside(self._file_system, beside / f"{path.name}.broken-{offset}", content)

    def _remove(self, start: int) -> None:
        with self._lock:
            self._starts.remove(start)
            self._names_changed = True
            file = self._files.pop(start, None)
        if file is not None:
            file.close()
            self._file_system.unlink(file.path)
