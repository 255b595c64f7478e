"""The tags codes behind the ConsumeQueueExt addresses of queue entries, many at once.

For readers of a queue that another process writes: no lock and no directory listing. The files
and their units are described in consume_queue_ext.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.errors import OffsetOutOfRangeError
from rocketray.kernels.layout import TAGS_CODE_EXT_MAX

from .consume_queue_ext import FIRST_ADDRESS, unit_row
from .file_system import SYSTEM_FILES, FileSystem
from .segment_cache import SegmentCache

__all__ = ["ExtCodes"]

_UNIT = unit_row(0)
_Int64s = npt.NDArray[np.int64]


class ExtCodes:
    """Looks units of one queue up. For one thread at a time."""

    def __init__(
        self, directory: Path, segment_bytes: int, file_system: FileSystem = SYSTEM_FILES
    ) -> None:
        """Map nothing yet; *directory* may come to be later."""
        self._files = SegmentCache(directory, segment_bytes, file_system=file_system)

    def resolve(self, fields: _Int64s) -> _Int64s:
        """The tags codes for the third *fields* int64[n] of entries.

        A field that is a tags code stays as it is, and so does an address of nothing.
        """
        rows = np.flatnonzero(fields <= TAGS_CODE_EXT_MAX)
        if not len(rows):
            return fields
        resolved = fields.copy()
        offsets = fields[rows] ^ np.int64(FIRST_ADDRESS)  # the sign bit taken away
        positions = offsets % self._files.segment_bytes
        starts = offsets - positions
        for start in np.unique(starts).tolist():
            here = (starts == start) & (positions <= self._files.segment_bytes - _UNIT.itemsize)
            self._read_units(start, positions[here], rows[here], resolved)
        return resolved

    def close(self) -> None:
        """Unmap everything."""
        self._files.close()

    def _read_units(
        self, start: int, positions: _Int64s, rows: npt.NDArray[np.intp], resolved: _Int64s
    ) -> None:
        try:
            data = self._files.get(start).data
        except OffsetOutOfRangeError:
            return
        units = data[positions[:, None] + np.arange(_UNIT.itemsize)].view(_UNIT)[:, 0]
        bitmap_bytes = units["bitmap_bytes"].astype(np.int32)
        good = (bitmap_bytes >= 0) & (units["size"] == _UNIT.itemsize + bitmap_bytes)
        resolved[rows[good]] = units["tags_code"][good]
