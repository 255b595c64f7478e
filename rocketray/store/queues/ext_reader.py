"""Batch lookups of the ConsumeQueueExt units that queue entries point to.

For readers of a queue that another process writes: no lock and no directory listing. The files
and their units are described in consume_queue_ext.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.errors import OffsetOutOfRangeError
from rocketray.kernels.consume_queue import match_bits, read_codes
from rocketray.kernels.layout import ENTRY_BYTES
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.segment_cache import SegmentCache

from .consume_queue_ext import FIRST_ADDRESS

_FIELD = struct.Struct(">q")
_KEPT_FILES = 2  # a queue is read in order; a deleted file takes room while mapped
_FIELD_AT = 12  # in a queue entry
_NO_UNITS: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
_Int64s = npt.NDArray[np.int64]


class BitTest(NamedTuple):
    """A filter's test of bitmaps: of the right size, and stored after *after_ms*.

    A message does not match if one of *bits* int64[k] is not set in such a bitmap.
    """

    bits: _Int64s
    bitmap_bytes: int
    after_ms: int


def bit_test(positions: Sequence[int], bit_count: int, after_ms: int) -> BitTest:
    """Return the test for bits at *positions* in bitmaps of *bit_count*, all below it."""
    return BitTest(np.array(positions, np.int64), bit_count // 8, after_ms)


class ExtReader:
    """A reader of the units of one queue. For one thread at a time."""

    def __init__(
        self, directory: Path, segment_bytes: int, file_system: FileSystem = SYSTEM_FILES
    ) -> None:
        """Start without maps; *directory* may be created later."""
        self._files = SegmentCache(directory, segment_bytes, _KEPT_FILES, file_system)

    def resolve(self, fields: _Int64s) -> _Int64s:
        """Return the tags codes for the third *fields* int64[n] of entries.

        A field that is a tags code stays, and so does an address without a unit.
        """
        resolved = fields.copy()
        at, units, start = 0, _NO_UNITS, -self._files.segment_bytes  # no address is in there
        while (at := read_codes(resolved, at, units, start, self._files.segment_bytes)) < len(
            fields
        ):
            start, units = self._file_of(int(fields[at]))
        return resolved

    def match_bits(
        self, raw: npt.NDArray[np.uint8], first: int, count: int, test: BitTest, out: _Int64s
    ) -> tuple[int, int]:
        """Find the entries that no bitmap excludes, among *count* of *raw* from *first* on.

        Their numbers go to the front of *out* int64[n] until it is full. Returns their count,
        and the number of the first entry that was not examined.
        """
        hits, at, end = 0, first, first + count
        units, start = _NO_UNITS, -self._files.segment_bytes  # no address is in there
        while True:
            hits, at = match_bits(
                *(raw, at, end - at, units, start, self._files.segment_bytes), *test, out, hits
            )
            if at == end or hits == len(out):
                return hits, at
            (address,) = _FIELD.unpack_from(raw.data, at * ENTRY_BYTES + _FIELD_AT)
            start, units = self._file_of(address)

    def _file_of(self, address: int) -> tuple[int, npt.NDArray[np.uint8]]:
        """Return the begin and content of a unit's file; empty content if it is missing."""
        offset = address - FIRST_ADDRESS
        start = offset - offset % self._files.segment_bytes
        try:
            return start, self._files.get(start).data
        except OffsetOutOfRangeError:
            return start, _NO_UNITS

    def close(self) -> None:
        self._files.close()
