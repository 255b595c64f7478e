"""Maps of files that hold no descriptor, and their syncs.

Python's ``mmap`` keeps a descriptor of its own for each map, because it may resize it. A process
that writes thousands of queues has several maps of each, and a limited number of descriptors. So a
map is made in two steps: Python reserves addresses, and the file is mapped over them. What Python
then has is an ordinary ``mmap`` object, which unmaps the file after its last view is gone.

A sync needs no descriptor either. For a map, ``msync`` does what ``fdatasync`` does for a
descriptor: Linux calls the same function of the file system, for the open file that was mapped, and
the map keeps that open file in use after its descriptor is closed. So it also reports the same
errors: each open file is told once of a write-back that failed since it was opened. To close the
file and open it again for a sync would lose those errors.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import numpy as np

from rocketray.errors import StoreError

# As in Linux on all processors that NumPy has wheels for; Python names only some of them.
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000  # no swap is promised
_MS_SYNC = 4
_FAILED = ctypes.c_void_p(-1).value  # MAP_FAILED
_LIBC = ctypes.CDLL(None, use_errno=True)
_mmap, _msync = _LIBC.mmap, _LIBC.msync
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long
_msync.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_lost: list[mmap.mmap] = []
"""Reservations that must not be unmapped: the system may have given their addresses to others."""


def map_file(path: Path, descriptor: int, size: int, *, read_only: bool) -> mmap.mmap:
    """Map the first *size* bytes of a file; its *descriptor* may then be closed.

    The object's ``size``, ``resize`` and ``flush`` do not know the file; see :func:`sync_map`.

    Raises:
        ValueError: *size* is 0.
        StoreError: this process has too many maps, or no addresses left.
        OSError: the file cannot be mapped.
    """
    if size <= 0:
        raise ValueError(f"{path}: an empty file cannot be mapped")
    protection = mmap.PROT_READ if read_only else mmap.PROT_READ | mmap.PROT_WRITE
    with _few_enough_maps(path):  # no memory is promised: none of the reserved pages is ever used
        mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | _MAP_NORESERVE, prot=protection)
        flags = mmap.MAP_SHARED | _MAP_FIXED
        if _mmap(address_of(mapping), size, protection, flags, descriptor, 0) == _FAILED:
            # The failed call may have unmapped the reservation first: Linux then gives its
            # addresses to the next map, and Python would unmap that one.
            _lost.append(mapping)
            _raise_last(path)
    return mapping


def address_of(mapped: mmap.mmap) -> int:
    """Return the address of a map's first byte."""
    return int(np.frombuffer(mapped, np.uint8).ctypes.data)


def sync_map(path: Path, address: int, size: int) -> None:
    """Sync the content of a mapped file to disk; the GIL is released, which ``flush`` does not do.

    Raises:
        OSError: the disk could not write it.
    """
    if _msync(address, size, _MS_SYNC) != 0:
        _raise_last(path)


@contextmanager
def _few_enough_maps(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise StoreError(
            f"{path} cannot be mapped ({error.strerror}): raise the limit of memory maps of a "
            "process (sysctl -w vm.max_map_count=…) or of its addresses (ulimit -v), or delete "
            "topics, then try again"
        ) from None


def _raise_last(path: Path) -> NoReturn:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), str(path))
