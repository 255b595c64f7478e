"""Verified copies of files.

Invariants
  1. When :func:`copy_file` returns, the copy is on disk, and was read again: it has the CRC-32 of
     what was read from the source.
  2. A block of zeros is not written, so it is a hole in the copy, as in preallocated files.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocketray.errors import StoreError

_BLOCK_BYTES = 1024 * 1024  # the least hole that is kept
_ZEROS = bytes(_BLOCK_BYTES)
_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no room, no quota, ulimit -f


@dataclass(frozen=True, slots=True)
class FileSum:
    """A file of ``size`` bytes: ``used`` of them have the CRC-32 ``crc32``, the rest are zeros."""

    size: int
    used: int
    crc32: int


def copy_file(
    source: Path,
    target: Path,
    used: int | None = None,
    on_bytes: Callable[[int], object] = lambda _: None,
) -> FileSum:
    """Copy the first *used* bytes of *source*, all by default, to a file of its size and mode.

    Raises:
        FileNotFoundError: there is no *source*.
        StoreError: *source* is shorter, there is no room for *target*, or it was not stored as it
            was read.
    """
    read = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(read)
        size = status.st_size
        used = size if used is None else used
        with no_room(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            write = os.open(target, flags, 0o600)
            try:
                os.fchmod(write, stat.S_IMODE(status.st_mode))
                os.ftruncate(write, size)
                crc32 = _copy(source, read, write, used, on_bytes)
                os.fsync(write)
                os.posix_fadvise(write, 0, 0, os.POSIX_FADV_DONTNEED)  # read it from the disk
                stored = _crc32(target, write, used)
            finally:
                os.close(write)
    finally:
        os.close(read)
    if stored != crc32:
        raise StoreError(
            f"{target}: it has CRC-32 {stored:08x}, and {crc32:08x} was written; its disk may be "
            "failing: use another one"
        )
    return FileSum(size, used, crc32)


def sum_of(path: Path, used: int | None = None) -> FileSum:
    """Return the sum of a file; raises as :func:`copy_file` for a source."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        used = size if used is None else used
        return FileSum(size, used, _crc32(path, descriptor, used))
    finally:
        os.close(descriptor)


@contextmanager
def no_room(target: Path) -> Iterator[None]:
    """Raise :class:`StoreError` when the file system, or a limit, has no room for *target*."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL_ERRORS:
            raise
        raise StoreError(
            f"{target}: not enough space for it ({error.strerror}); the copy is incomplete: free "
            "space on its file system, then run the command again"
        ) from None


def _copy(source: Path, read: int, write: int, used: int, on_bytes: Callable[[int], object]) -> int:
    crc32 = at = 0
    for block in _blocks(source, read, used):
        crc32 = zlib.crc32(block, crc32)
        if block != _ZEROS[: len(block)]:
            _pwrite(write, memoryview(block), at)
        at += len(block)
        on_bytes(len(block))
    return crc32


def _crc32(path: Path, descriptor: int, used: int) -> int:
    crc32 = 0
    for block in _blocks(path, descriptor, used):
        crc32 = zlib.crc32(block, crc32)
    return crc32


def _blocks(path: Path, descriptor: int, used: int) -> Iterator[bytes]:
    """Yield the first *used* bytes of a file."""
    at = 0
    while at < used:
        block = os.pread(descriptor, min(_BLOCK_BYTES, used - at), at)
        if not block:
            raise StoreError(f"{path}: it has {at} bytes, and {used} are expected: it was cut")
        yield block
        at += len(block)


def _pwrite(descriptor: int, block: memoryview, at: int) -> None:
    while block:
        written = os.pwrite(descriptor, block, at)
        block, at = block[written:], at + written
