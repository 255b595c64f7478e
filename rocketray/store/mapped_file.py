"""One file of fixed size, mapped into memory whole.

Invariants
  1. The file system has given all of the file's blocks before a byte is written through the
     mapping: behind an mmap a full disk is a SIGBUS, not an error.
  2. A file appears under its name with its full size and zeros in it, or not at all.
  3. The size of the file says nothing about what was written.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import mmap
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.errors import CorruptRecordError, StoreFullError

__all__ = ["HALF_MADE_SUFFIX", "MappedFile", "allocate", "create_file", "keep_aside"]

HALF_MADE_SUFFIX = ".tmp"
_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MADV_POPULATE_WRITE = 23  # Linux 5.14; elsewhere the first write touches the pages
_ZEROS = bytes(1 << 20)
_LOG = logging.getLogger(__name__)


def allocate(descriptor: int, path: Path, start: int, size: int) -> None:
    """Make the file system give the blocks of *size* bytes from *start*; what is there stays.

    Raises:
        StoreFullError: it has none left, or a limit on file sizes forbids it.
    """
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, start, size)
        else:
            _write_zeros(descriptor, start, size)
    except OSError as error:
        if error.errno not in _FULL_ERRORS:
            raise
        raise StoreFullError(
            f"{path}: no room for {size} bytes more ({error.strerror}); nothing was stored: "
            "free space on its file system, or delete a topic, then send again"
        ) from None


def create_file(path: Path, size: int, allocated_size: int) -> None:
    """Make a file of *size* zeros of which the first *allocated_size* have their blocks.

    Raises:
        StoreFullError: there is no room; the half-made file was removed.
    """
    half_made = path.with_name(path.name + HALF_MADE_SUFFIX)
    descriptor = os.open(half_made, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        allocate(descriptor, path, 0, allocated_size)
        os.ftruncate(descriptor, size)
        half_made.rename(path)
    except BaseException:
        half_made.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def keep_aside(path: Path, content: bytes) -> None:
    """Write *content* to a new file, on disk when it returns; raises :class:`StoreFullError`."""
    create_file(path, len(content), len(content))
    with path.open("r+b") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


class MappedFile:
    """A mapped file; ``data`` uint8[size] is its content, writable unless opened read-only.

    :meth:`flush` may run in another thread than the writer's.
    """

    __slots__ = ("_descriptor", "_map", "data", "path", "size", "start")

    def __init__(self, path: Path, start: int, size: int, *, read_only: bool) -> None:
        """Map *path*, whose first byte has the offset *start* in the whole of its files.

        Raises:
            CorruptRecordError: the file has another size.
        """
        self.path = path
        self.start = start
        self.size = size
        flags = os.O_RDONLY if read_only else os.O_RDWR
        self._descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            self._check_size()
            access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
            self._map = mmap.mmap(self._descriptor, size, access=access)
        except BaseException:
            os.close(self._descriptor)
            raise
        self.data: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    def read(self, position: int, size: int) -> bytes:
        """A copy of *size* bytes from *position*, fewer at the end of the file."""
        return self._map[position : position + size]

    def write(self, position: int, content: bytes) -> None:
        """Put *content* at *position*."""
        self._map[position : position + len(content)] = content

    def view(self) -> memoryview:
        """The content without a copy; release it before :meth:`close`."""
        return memoryview(self._map)

    def allocate(self, position: int, size: int) -> None:
        """Blocks for a part of the file; raises :class:`StoreFullError`."""
        allocate(self._descriptor, self.path, position, size)

    def populate(self) -> None:
        """Touch every page now, with the GIL released, so that the writer need not.

        Where the system cannot, nothing is lost but time.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        address = ctypes.c_void_p(self.data.ctypes.data)
        if libc.madvise(address, ctypes.c_size_t(self.size), _MADV_POPULATE_WRITE) != 0:
            _LOG.debug("%s: not populated: %s", self.path, os.strerror(ctypes.get_errno()))

    def flush(self) -> None:
        """Bring the content to disk; releases the GIL, which ``mmap.flush`` does not."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Unmap. Where an array over ``data`` still lives, the memory goes when that does."""
        self.data = np.empty(0, np.uint8)
        try:
            self._map.close()
        except BufferError:
            _LOG.debug("%s: still in use, unmapped later", self.path)
        os.close(self._descriptor)

    def _check_size(self) -> None:
        actual = os.fstat(self._descriptor).st_size
        if actual != self.size:
            raise CorruptRecordError(
                str(self.path),
                self.start,
                f"the file has {actual} bytes where {self.size} are expected",
            )


def _write_zeros(descriptor: int, start: int, size: int) -> None:
    """Extend a new file by writing it; only for systems without ``posix_fallocate``."""
    end = start + size
    position = max(start, os.fstat(descriptor).st_size)
    while position < end:
        position += os.pwrite(descriptor, _ZEROS[: end - position], position)
