"""One file of fixed size, mapped whole into memory.

Invariants
  1. The file system has allocated the blocks of a part of the file before a byte is written there
     through the mapping: behind an mmap a full disk is a SIGBUS, not an error.
  2. A file appears under its name with its full size and zeros in it, or not at all.
  3. The size of the file says nothing about how much was written.

A file begins with few blocks, and gets more as it is written. While it has few, the system is told
that its pages are used at random: otherwise it reads up to 16 MiB ahead of the first byte that is
touched, which takes 3 ms and as much memory, for zeros. A file that grows is written faster with
the larger pages that come of reading ahead.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.errors import CorruptRecordError, StoreFullError

from .file_system import SYSTEM_FILES, FileSystem

_HALF_MADE_SUFFIX = ".tmp"
# No space, no quota, and a file above the process's limit (ulimit -f): none is a fault of the disk.
FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SMALL_BYTES = 4 * 1024 * 1024  # of blocks; up to here a file is not read ahead
_MADV_POPULATE_WRITE = 23  # Linux 5.14; elsewhere the first write touches the pages
_LOG = logging.getLogger(__name__)


def create_file(file_system: FileSystem, path: Path, size: int, allocated_size: int) -> None:
    """Create a file of *size* zeros, with blocks for the first *allocated_size* bytes.

    Raises:
        StoreFullError: there is no space; the incomplete file was removed.
    """
    half_made = path.with_name(path.name + _HALF_MADE_SUFFIX)
    try:
        with no_room_is_full(path):
            file_system.create(half_made, size, allocated_size)
            file_system.rename(half_made, path)
    except BaseException:
        file_system.unlink(half_made)
        raise


def remove_half_made(file_system: FileSystem, directory: Path) -> None:
    """Remove the files that a crash left within :func:`create_file`."""
    for name in file_system.names(directory):
        if name.endswith(_HALF_MADE_SUFFIX):
            file_system.unlink(directory / name)


def keep_aside(file_system: FileSystem, path: Path, content: bytes) -> None:
    """Write *content* to a new file, durable on return; raise :class:`StoreFullError`.

    If a file of that name exists, it stays, and the new one's name gets a number.
    """
    number, free = 1, path
    while file_system.exists(free):
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    create_file(file_system, free, len(content), len(content))
    file_system.write(free, content)
    file_system.sync(free)
    file_system.sync(free.parent)


class MappedFile:
    """A mapped file; ``data`` uint8[size] is its content, writable unless opened read-only.

    :meth:`flush` may run in another thread than the writer's.
    """

    __slots__ = (
        "_file",
        "_is_open",
        "_is_small",
        "_map",
        "data",
        "path",
        "reserved",
        "size",
        "start",
    )

    def __init__(
        self,
        path: Path,
        start: int,
        size: int,
        *,
        read_only: bool,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Map *path*, whose first byte has the offset *start* in the sequence of files.

        Raises:
            CorruptRecordError: the file has another size.
        """
        self.path = path
        self.start = start
        self.size = size
        self.reserved = 0
        """The number of bytes at the begin that :meth:`reserve` has given blocks."""
        self._file = file_system.open(path, read_only=read_only)
        self._is_open = False
        try:
            if self._file.size != size:
                reason = f"the file has {self._file.size} bytes where {size} are expected"
                raise CorruptRecordError(str(path), start, reason)
            self._map = self._file.map()
            self._is_open = not read_only  # a map that is only read needs nothing of it
            self._is_small = self._is_open and self._file.allocated <= _SMALL_BYTES
            if self._is_small:
                self._map.madvise(mmap.MADV_RANDOM)
        finally:
            if not self._is_open:
                self._file.close()
        self.data: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    def read(self, position: int, size: int) -> bytes:
        """Return a copy of *size* bytes from *position*, fewer at the end of the file."""
        return self._map[position : position + size]

    def write(self, position: int, content: bytes) -> None:
        """Write *content* at *position*; :meth:`reserve` gave blocks to all of it."""
        self._map[position : position + len(content)] = content

    def find(self, content: bytes, position: int) -> int:
        """Return the position of *content* at or after *position*; -1 if there is none."""
        return self._map.find(content, position, self.data_end() + len(content) - 1)

    def data_end(self) -> int:
        """Return a position from which on all bytes are zero; a look there would take memory.

        For the writer; readers, who know where they may read, get the size.
        """
        return self._file.data_end() if self._is_open else self.size

    def view(self) -> memoryview:
        """Return the content without a copy; release it before :meth:`close`."""
        return memoryview(self._map)

    def reserve(self, end: int, ahead: int) -> None:
        """Have blocks for the first *end* bytes; if some lack them, also for *ahead* bytes more.

        Raises:
            StoreFullError: there is no space.
        """
        if end > self.reserved:
            end = min(end + ahead, self.size)
            with no_room_is_full(self.path):
                self._file.allocate(0, end)  # also where a copy of the file has holes
            self.reserved = max(end, self.reserved)
            if self._is_small and end > _SMALL_BYTES:
                self._is_small = False
                self._map.madvise(mmap.MADV_NORMAL)

    def populate(self) -> None:
        """Touch every page, with the GIL released, so that the writer meets no page faults.

        If the system does not support it, the only effect is slower writes.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        address = ctypes.c_void_p(self.data.ctypes.data)
        if libc.madvise(address, ctypes.c_size_t(self.size), _MADV_POPULATE_WRITE) != 0:
            _LOG.debug("%s: not populated: %s", self.path, os.strerror(ctypes.get_errno()))

    def rewrite(self, start: int, end: int) -> None:
        """Have the next :meth:`flush` write the bytes from *start* to *end*, whatever failed."""
        self._file.rewrite(self.data, start, end)

    def flush(self) -> None:
        """Sync the content to disk; the GIL is released meanwhile."""
        self._file.sync()

    def close(self) -> None:
        """Unmap. If an array over ``data`` is still alive, the memory is freed with it."""
        self.data = np.empty(0, np.uint8)
        if self._is_open:
            self._is_open = False
            self._file.close()
        try:
            self._map.close()
        except BufferError:
            _LOG.debug("%s: still in use, unmapped later", self.path)


@contextmanager
def no_room_is_full(path: Path) -> Iterator[None]:
    """Raise :class:`StoreFullError` when the file system, or a limit, has no space for *path*."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_ERRORS:
            raise
        raise StoreFullError(
            f"{path}: not enough space for it ({error.strerror}); nothing was stored: free space "
            "on its file system, or delete a topic, then send again"
        ) from None
