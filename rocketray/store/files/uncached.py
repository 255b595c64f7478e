"""Reads of a file as the disk has it, which leave the page cache as it was.

A plain read, or a map, of pages that are in the cache checks memory, not the disk; and of all
others it brings pages in, for which the system may drop some that are in use. What Linux does:

- ``O_DIRECT`` reads past the cache, after it has written back the pages of the range that are
  dirty. Cached pages stay, mapped or not, and none is added.
- Where a file system has no ``O_DIRECT``, only cached reads are left. ``POSIX_FADV_DONTNEED``
  drops the clean pages of a range that are in no process's page table; pages that a process has
  mapped and touched stay, and so do dirty ones. A page that others only read would go, too. So it
  is called just for the pages that ``mincore`` did not see in the cache before. Pages that were
  there are not checked on the disk.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

DISK_BLOCK_BYTES = max(4096, mmap.PAGESIZE)
"""The start of a read is a multiple of this: of a page, and of the logical block of any disk."""
_DIRECT = getattr(os, "O_DIRECT", 0)  # a flag of Linux; elsewhere reads are through the cache
# What file systems say that have no O_DIRECT, at the opening or at the read.
_NO_DIRECT_ERRORS = (errno.EINVAL, errno.EOPNOTSUPP)


def read_uncached(path: Path, start: int, size: int) -> npt.NDArray[np.uint8]:
    """Return *size* bytes of a file from *start*, fewer at its end; the GIL is released meanwhile.

    Raises:
        OSError: the disk cannot read them, or there is no such file.
    """
    assert start % DISK_BLOCK_BYTES == 0
    # O_DIRECT reads whole blocks; the rest is cut off below.
    blocks = max(-(-size // DISK_BLOCK_BYTES), 1)
    buffer = mmap.mmap(-1, blocks * DISK_BLOCK_BYTES)  # O_DIRECT needs aligned memory
    try:
        read_size = _read(path, _DIRECT, buffer, start)
    except OSError as error:
        if error.errno not in _NO_DIRECT_ERRORS:
            raise
        read_size = _read(path, 0, buffer, start)
    return np.frombuffer(buffer, np.uint8)[: min(read_size, size)]


def _read(path: Path, flags: int, buffer: mmap.mmap, start: int) -> int:
    """Fill *buffer* from *start* of a file; return how many bytes it has there."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        if flags & _DIRECT:
            return _fill(descriptor, buffer, start)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no pages ahead
        absent = np.flatnonzero(~_cached_pages(descriptor, start, len(buffer)))
        found = _fill(descriptor, buffer, start)
        for page in absent.tolist():
            at = start + page * mmap.PAGESIZE
            os.posix_fadvise(descriptor, at, mmap.PAGESIZE, os.POSIX_FADV_DONTNEED)
        return found
    finally:
        os.close(descriptor)


def _fill(descriptor: int, buffer: mmap.mmap, start: int) -> int:
    found = 0
    with memoryview(buffer) as room:
        while count := os.preadv(descriptor, [room[found:]], start + found):
            found += count
            if found % DISK_BLOCK_BYTES:  # the end of the file
                break
    return found


def _cached_pages(descriptor: int, start: int, size: int) -> npt.NDArray[np.bool_]:
    """Return which pages of a part of a file are in the page cache."""
    size = min(size, os.fstat(descriptor).st_size - start)
    if size <= 0:
        return np.empty(0, np.bool_)
    pages = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    mapped = np.frombuffer(mmap.mmap(descriptor, size, prot=mmap.PROT_READ, offset=start), np.uint8)
    places = ctypes.c_void_p(mapped.ctypes.data), ctypes.c_size_t(size)
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    if mincore(*places, pages.ctypes.data_as(ctypes.c_void_p)) != 0:
        return np.ones(len(pages), np.bool_)  # so that none is dropped
    cached: npt.NDArray[np.bool_] = pages & 1 != 0
    return cached
