"""A shard's control page for readers: mapped read-only, and without Numba.

Short-lived processes, such as Spark's planners, would spend longer on loading kernels than on their
work. An aligned 8-byte load is never seen half, and on x86-64 the data written before the number
can be read after it.

The layout is that of control_page.py; a test checks that the two agree.
"""

from __future__ import annotations

import os
from mmap import mmap
from pathlib import Path

import numpy as np

from rocketray.errors import StoreVersionError
from rocketray.store.files.file_maps import map_file

_LINE_NUMBERS = 64 // 8  # a line of 64 bytes, in 8-byte numbers
_FORMAT = int.from_bytes(b"rktrctl1", "little")
_VISIBLE = 1 * _LINE_NUMBERS
_MINIMUM = 2 * _LINE_NUMBERS
_FLUSHED = 3 * _LINE_NUMBERS
_PAGE_BYTES = 4096


class ControlView:
    """The numbers of a shard, current at each call."""

    __slots__ = ("_numbers",)

    def __init__(self, path: Path) -> None:
        """Map the page.

        Raises:
            FileNotFoundError: the shard has never run, or is being created.
            StoreVersionError: the file is not a control page of this version.
        """
        descriptor = os.open(path, os.O_RDONLY)
        page: mmap | bytes = b""
        try:
            size = os.fstat(descriptor).st_size
            if size >= _PAGE_BYTES:
                page = map_file(path, descriptor, size, read_only=True)
        finally:
            os.close(descriptor)
        self._numbers = np.frombuffer(page, np.int64)
        kind = int(self._numbers[0]) if len(self._numbers) else 0
        # Its writer gives it room first and the format last: a reader may look in between.
        if size == 0 or (kind == 0 and size >= _PAGE_BYTES):
            raise FileNotFoundError(f"{path} is not complete yet")
        if kind != _FORMAT:
            raise StoreVersionError(
                f"{path} is not a control page that this release of rocketray can read; use the "
                "release that wrote it, or a newer one"
            )

    def visible(self) -> int:
        """Return the queue offset after the last message that readers may see."""
        return int(self._numbers[_VISIBLE])

    def minimum(self) -> int:
        """Return the first queue offset that still exists."""
        return int(self._numbers[_MINIMUM])

    def flushed(self) -> int:
        """Return the physical offset below which everything survives power loss."""
        return int(self._numbers[_FLUSHED])
