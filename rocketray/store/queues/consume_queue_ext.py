"""ConsumeQueueExt: the units beside queue entries in a store that keeps filter bitmaps.

The third field of such an entry holds an address, at most -2147483649: the unit's offset in this
space minus 2**63. Unit: i16 size | i64 tags code | i64 store time | i16 bitmap bytes | bitmap.
Source: RocketMQ 5.3.3, ``ConsumeQueueExt``.

Invariants
  1. A unit lies in one file and leaves at least 4 bytes of it free. If the next one does not
     fit, the i16 -1 closes the file, and the unit goes to the next one.
  2. Units are in the order of the queue's entries. The last entry with an address tells where they
     end; the files do not.
  3. An entry may have no unit: its third field is then the tags code. So it is while the writer
     adds none, and where none could be put.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rocketray.kernels.layout import TAGS_CODE_EXT_MAX
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.mapped_file import MappedFile
from rocketray.store.files.mapped_file_queue import MappedFileQueue, Repair, rewrite_files
from rocketray.store.files.written_sums import WrittenSums

from .ext_unit import ExtUnit

_UNIT = struct.Struct(">hqqh")
_UNIT_MAX_BYTES = 32_767  # the maximum of an i16
_ADDRESS_BASE = 1 << 63  # RocketMQ's decorate: offset - 2**63
FIRST_ADDRESS = -_ADDRESS_BASE
_FREE_BYTES = 4  # END_BLANK_DATA_LENGTH
_END_OF_FILE = b"\xff\xff"  # the i16 -1
_Int64s = npt.NDArray[np.int64]
_Bitmaps = npt.NDArray[np.uint8]


class BitmapSource(Protocol):
    """A source of the filter bitmaps of messages."""

    def bitmaps(
        self, topic: str, data: npt.NDArray[np.uint8], starts: _Int64s, sizes: _Int64s
    ) -> _Bitmaps | None:
        """Return the bitmaps of messages of *topic*, uint8[n, bytes]; None if it has no filters.

        Their property strings lie in *data* uint8, at *starts* int64[n] with *sizes* int64[n].
        """
        ...


class ConsumeQueueExt:
    """The ext files of one queue. One writer; :meth:`flush` may run beside it."""

    def __init__(
        self,
        directory: Path,
        segment_bytes: int,
        *,
        read_only: bool,
        repair: Repair = Repair.NOTHING,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Find the files; the writer sets the end of the units before it appends."""
        self.files = MappedFileQueue(
            directory, segment_bytes, read_only=read_only, repair=repair, file_system=file_system
        )
        """Its files, which may hold bytes behind the last unit, too."""
        self.sums = WrittenSums(self.files)
        """The checksums of the units up to the last flush."""
        self._end = self._flushed = self.files.min_offset

    def unit(self, address: int) -> ExtUnit | None:
        """Return the unit at *address*, the third field of a queue entry; None without one."""
        offset = address + _ADDRESS_BASE
        file = self.files.file(offset) if offset >= 0 and address <= TAGS_CODE_EXT_MAX else None
        if file is None:
            return None
        position = offset - file.start
        raw = file.read(position, _UNIT.size)
        if len(raw) < _UNIT.size:
            return None
        size, tags_code, store_timestamp_ms, bitmap_bytes = _UNIT.unpack(raw)
        if bitmap_bytes < 0 or size != _UNIT.size + bitmap_bytes:
            return None
        bitmap = file.read(position + _UNIT.size, bitmap_bytes)
        if len(bitmap) < bitmap_bytes:
            return None
        return ExtUnit(tags_code, store_timestamp_ms, bitmap or None)

    def reserve(self, count: int, bitmap_bytes: int) -> None:
        """Ensure that *count* units fit; raise :class:`StoreFullError`, no unit changed."""
        if self._fits(_UNIT.size + bitmap_bytes):
            # Each step of the generator creates the file, or the blocks, of a place.
            for _ in self._places(count, _UNIT.size + bitmap_bytes):
                pass

    def append(
        self, tags_codes: _Int64s, store_timestamps_ms: _Int64s, bitmaps: _Bitmaps | None
    ) -> _Int64s:
        """Add a unit for each message, and return the third field of its queue entry.

        That is the unit's address; or the tags code, for bitmaps that are too large for a unit.
        :meth:`reserve` made room.
        """
        count, bitmap_bytes = len(tags_codes), 0 if bitmaps is None else bitmaps.shape[1]
        size = _UNIT.size + bitmap_bytes
        if not self._fits(size):
            return tags_codes
        rows = np.empty(count, unit_row(bitmap_bytes))
        rows["size"], rows["bitmap_bytes"] = size, bitmap_bytes
        rows["tags_code"], rows["store_timestamp_ms"] = tags_codes, store_timestamps_ms
        if bitmaps is not None:
            rows["bitmap"] = bitmaps
        addresses = np.empty(count, np.int64)
        done = 0
        for file, position, part in self._places(count, size):
            if not part:
                file.write(position, _END_OF_FILE)
            file.write(position, rows[done : done + part].tobytes())
            first = file.start + position + FIRST_ADDRESS
            addresses[done : done + part] = first + size * np.arange(part, dtype=np.int64)
            done += part
            self._end = file.start + (position + part * size if part else file.size)
        return addresses

    def end_with(self, address: int) -> bool:
        """End the units with the one at *address*; return False when there is none."""
        unit = self.unit(address)
        if unit is None:
            return False
        self._end = address + _ADDRESS_BASE + _UNIT.size + len(unit.bitmap or b"")
        self._flushed = min(self._flushed, self._end)
        return True

    def keep(
        self, old_fields: _Int64s, tags_codes: _Int64s, store_timestamps_ms: _Int64s
    ) -> tuple[_Int64s, int]:
        """Keep the valid units that entries point to; for recovery.

        *old_fields* int64[n] are the third fields of the entries. Returns the new ones, and the
        number of rows up to the last unit that stays. An entry without a unit gets the tags code,
        as in RocketMQ when a unit cannot be put. A unit to which no entry points is dropped: its
        bitmap may be another message's.
        """
        fields, kept = tags_codes.copy(), 0
        for row in np.flatnonzero(old_fields <= TAGS_CODE_EXT_MAX).tolist():
            address = int(old_fields[row])
            if self._keep(address, int(tags_codes[row]), int(store_timestamps_ms[row])):
                fields[row] = address
                kept = row + 1
        return fields, kept

    def end_at_begin(self) -> None:
        """End the units at their begin: keep none."""
        self._end = self._flushed = self.files.min_offset

    def clear(self) -> None:
        """Remove every file."""
        self.files.cut(-1, keep=False)
        self._end = self._flushed = 0

    def cut_tail(self) -> None:
        """Zero the bytes behind the last unit, after recovery."""
        self.files.cut(self._end, keep=False)

    def forget_before(self, address: int | None) -> None:
        """Forget the files before the one of *address*, the first in use.

        None means that no unit is in use.
        """
        self.files.forget_before(self._end if address is None else address + _ADDRESS_BASE)

    def rewrite_from(self, address: int) -> None:
        """Have the next flush write the units from *address* on; see ``queue_recovery``."""
        start = address + _ADDRESS_BASE
        rewrite_files(self.files, start, self._end)
        self._flushed = min(self._flushed, start)

    def prepare_next(self) -> None:
        """Create the next file if the current one is half full; for a thread beside the writer."""
        self.files.prepare_next(self._end)

    def flush(self) -> None:
        """Sync all units to disk; may run beside the writer."""
        end = self._end
        if end > self._flushed:
            self.files.flush(self._flushed, end)
            self._flushed = end
        self.sums.cover(end)

    def _keep(self, address: int, tags_code: int, store_timestamp_ms: int) -> bool:
        """End the units with the one at *address*, if it matches and follows the previous ones."""
        unit = self.unit(address)
        return (
            unit is not None
            and (unit.tags_code, unit.store_timestamp_ms) == (tags_code, store_timestamp_ms)
            and address + _ADDRESS_BASE >= self._end
            and self.end_with(address)
        )

    def _fits(self, size: int) -> bool:
        return size <= min(_UNIT_MAX_BYTES, self.files.segment_bytes - _FREE_BYTES)

    def _places(self, count: int, size: int) -> Iterator[tuple[MappedFile, int, int]]:
        """Yield places for *count* units of *size* bytes: file, position, number (0: file full)."""
        end = self._end
        while count:
            file = self.files.ensure(end, count * size + _FREE_BYTES)
            position = end - file.start
            part = min(count, max(file.size - position - _FREE_BYTES, 0) // size)
            yield file, position, part
            end = file.start + (position + part * size if part else file.size)
            count -= part


def unit_row(bitmap_bytes: int) -> np.dtype[np.void]:
    """Return a unit with a bitmap of *bitmap_bytes* as a NumPy record."""
    return np.dtype(
        [
            ("size", ">i2"),
            ("tags_code", ">i8"),
            ("store_timestamp_ms", ">i8"),
            ("bitmap_bytes", ">i2"),
            ("bitmap", "u1", (bitmap_bytes,)),
        ]
    )
