"""A consume queue: for each message of one (topic, queueId) an entry of 20 bytes, in order.

Entry: i64 physical offset | i32 record size | i64 tags code, or the address of an ext unit.
Entry n is at byte 20 n of the queue's files. Source: RocketMQ 5.3.3, ``ConsumeQueue``.

Invariants
  1. The log is the source of truth: every entry below ``max_offset`` can be rebuilt from it.
  2. Entries are written in place and never zeroed below ``max_offset``, so a reader in another
     process that knows an old maximum is always right.
  3. A queue that begins above 0 has filler entries before its begin in its first file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.config import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from rocketray.errors import OffsetOutOfRangeError
from rocketray.kernels.append import append_queue_entries
from rocketray.kernels.layout import TAGS_CODE_EXT_MAX
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.mapped_file import MappedFile
from rocketray.store.files.mapped_file_queue import MappedFileQueue, Mend

from .consume_queue_ext import ConsumeQueueExt, ExtUnit

__all__ = ["ENTRY", "FILLER_SIZE", "HOLE_SIZE", "ConsumeQueue", "QueueEntry"]

ENTRY = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
FILLER_SIZE = 0x7FFFFFFF
HOLE_SIZE = 1  # in the entry of a message lost in a hole of the log (replay.py)
_BLOCK_ENTRIES = 1024  # converted to Python numbers at once
_Rows = npt.NDArray[np.void]
_Int64s = npt.NDArray[np.int64]
_Int32s = npt.NDArray[np.int32]


class QueueEntry(NamedTuple):
    """One entry. ``tags_code`` is None if its ext unit is missing."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int | None
    unit: ExtUnit | None = None


class ConsumeQueue:
    """The entries of one queue. Reads are safe beside the writer, below ``max_offset``."""

    def __init__(
        self,
        directory: Path,
        segment_entries: int,
        *,
        read_only: bool,
        mend: Mend = Mend.NOTHING,
        ext: ConsumeQueueExt | None = None,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Find the files; recovery sets the queue's end and begin before it is used."""
        self._files = MappedFileQueue(
            directory,
            segment_entries * ENTRY_BYTES,
            read_only=read_only,
            mend=mend,
            file_system=file_system,
        )
        if self._files.mended and min(self._files.mended) < self._files.starts[-1]:
            self._files.clear()  # entries in the middle are missing: all are rebuilt
        self.ext = ext
        """The units that entries may have; None if no entry ever had one."""
        self.adds_units = ext is not None
        """Whether new entries get a unit in ConsumeQueueExt; the writer may change it."""
        self.segment_entries = segment_entries
        self.min_offset = self.max_offset = self._files.min_offset // ENTRY_BYTES
        self._flushed = self.max_offset
        self.has_lost_units = False

    def begin_ext(self, ext: ConsumeQueueExt) -> None:
        """Start to give entries units in *ext*; its existing units belong to none."""
        ext.clear()
        self.ext = ext

    def reserve(self, count: int, bitmap_bytes: int = 0) -> None:
        """Ensure that *count* entries fit, with filter bitmaps of *bitmap_bytes* each.

        Raises :class:`StoreFullError`; nothing changed.
        """
        if self.ext is not None and self.adds_units:
            self.ext.reserve(count, bitmap_bytes)
        start = self.max_offset * ENTRY_BYTES
        end = start + count * ENTRY_BYTES
        while start < end:
            file = self._files.ensure(start)
            start = file.start + file.size

    def segment(self) -> MappedFile | None:
        """Return the file for the next entry, if it was created."""
        return self._files.file(self.max_offset * ENTRY_BYTES)

    def append(
        self,
        sizes: npt.NDArray[np.int32],
        tags_codes: npt.NDArray[np.int64],
        first_physical: int,
        store_timestamps_ms: npt.NDArray[np.int64],
        bitmaps: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        """Add the entries of records that lie back to back from *first_physical* on.

        :meth:`reserve` made room for them. *bitmaps* uint8[n, bytes] go into ConsumeQueueExt.
        """
        if self.ext is not None and self.adds_units:
            tags_codes = self.ext.append(tags_codes, store_timestamps_ms, bitmaps)
        done, count = 0, len(sizes)
        while done < count:
            file, position = self._place()
            part = min(count - done, (file.size - position) // ENTRY_BYTES)
            append_queue_entries(file.data, position, sizes, tags_codes, first_physical, done, part)
            done += part
            self.max_offset += part

    def put(
        self,
        physical_offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int32],
        tags_codes: npt.NDArray[np.int64],
        store_timestamps_ms: npt.NDArray[np.int64],
        bitmaps: npt.NDArray[np.uint8] | None = None,
    ) -> int:
        """Add entries of records that lie anywhere; return how many were not there already.

        For recovery. An entry with the same content in a valid ext unit stays. Raises
        :class:`StoreFullError`.
        """
        self.reserve(len(sizes), 0 if bitmaps is None else bitmaps.shape[1])
        rows = np.empty(len(sizes), ENTRY)
        rows["physical_offset"], rows["size"] = physical_offsets, sizes
        rows["tags_code"] = tags_codes
        if self.ext is not None:
            offsets, old_sizes, fields = self.columns(self.max_offset, self.max_offset + len(rows))
            fields[(offsets != physical_offsets) | (old_sizes != sizes)] = 0
            fields, kept = self.ext.keep(fields, tags_codes, store_timestamps_ms)
            if self.adds_units:
                fields[kept:] = self.ext.append(
                    tags_codes[kept:],
                    store_timestamps_ms[kept:],
                    None if bitmaps is None else bitmaps[kept:],
                )
            rows["tags_code"] = fields
        done = changed = 0
        while done < len(rows):
            file, position = self._place()
            part = rows[done : done + (file.size - position) // ENTRY_BYTES]
            old = file.data[position:].view(ENTRY)[: len(part)]
            changed += int((old != part).sum())
            old[:] = part
            done += len(part)
            self.max_offset += len(part)
        return changed

    def columns(self, start: int, stop: int) -> tuple[_Int64s, _Int32s, _Int64s]:
        """Return physical offsets, sizes and third fields of the entries from *start* to *stop*.

        As in the files, also beyond ``max_offset``; fewer where the files end.
        """
        parts = [np.empty(0, ENTRY)]
        for file in self._files.files_between(start * ENTRY_BYTES, stop * ENTRY_BYTES):
            first = file.start // ENTRY_BYTES
            parts.append(file.data.view(ENTRY)[max(start - first, 0) : stop - first])
        rows = np.concatenate(parts)
        return (
            rows["physical_offset"].astype(np.int64),
            rows["size"].astype(np.int32),
            rows["tags_code"].astype(np.int64),
        )

    def tags_code(self, field: int) -> int | None:
        """Return the tags code for an entry's third *field*; None if its ext unit is missing."""
        if field > TAGS_CODE_EXT_MAX:
            return field
        unit = self.ext.unit(field) if self.ext else None
        return unit.tags_code if unit else None

    @property
    def files_end(self) -> int:
        """The queue offset behind the last entry that fits into the files."""
        return self._files.end // ENTRY_BYTES

    @property
    def directory(self) -> Path:
        """The directory of its files."""
        return self._files.directory

    @property
    def file_count(self) -> int:
        """The number of files."""
        return len(self._files.starts)

    def restart_at(self, queue_offset: int) -> None:
        """Drop all entries and begin the queue at *queue_offset*; for recovery."""
        self._files.clear()
        if self.ext is not None:
            self.ext.clear()
        file = self._files.ensure(queue_offset * ENTRY_BYTES)
        count = queue_offset - file.start // ENTRY_BYTES
        file.write(0, np.array([(0, FILLER_SIZE, 0)] * count, ENTRY).tobytes())
        self.min_offset = self.max_offset = queue_offset
        self._flushed = file.start // ENTRY_BYTES

    def entry(self, queue_offset: int) -> QueueEntry:
        """Return the entry at *queue_offset*; raise :class:`OffsetOutOfRangeError`."""
        rows = self._rows(queue_offset)
        if not len(rows):
            raise OffsetOutOfRangeError(
                f"consume queue {self._files.directory}",
                queue_offset,
                self.min_offset,
                self.max_offset,
            )
        return self._decode(queue_offset, rows[0].item())

    def entries(self, queue_offset: int) -> Iterator[QueueEntry]:
        """Yield the entries from *queue_offset* to the end of its file, or of the queue."""
        rows = self._rows(queue_offset)
        for start in range(0, len(rows), _BLOCK_ENTRIES):
            for at, row in enumerate(
                rows[start : start + _BLOCK_ENTRIES].tolist(), queue_offset + start
            ):
                yield self._decode(at, row)

    def next_file(self, queue_offset: int) -> int:
        """Return the first queue offset of the file after that of *queue_offset*."""
        return queue_offset + self.segment_entries - queue_offset % self.segment_entries

    def first_at_or_after(self, key: Callable[[QueueEntry], bool]) -> int:
        """Return the first queue offset whose entry satisfies *key*: false, then true for all.

        ``max_offset`` when no entry does.
        """
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            if key(self.entry(middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def find_end(self, log_end: int) -> int:
        """Return the end of the valid entries of records below *log_end*: a queue offset.

        Files before the last one with an entry are trusted: they were written and synced first.
        For the writer the last entry has its ext unit, and the units end there;
        ``has_lost_units`` says whether entries behind it have none.
        """
        end = self._find_entries_end(log_end)
        self.has_lost_units = False
        if self.ext is None or self._files.read_only:
            return end
        for queue_offset, address in self._addresses_before(end):
            if self.ext.end_with(address):
                return end
            end = queue_offset
            self.has_lost_units = True
        self.ext.end_at_begin()
        return end

    def _find_entries_end(self, log_end: int) -> int:
        for start in reversed(self._files.starts):
            rows = self._file_rows(start)
            offsets = rows["physical_offset"].astype(np.int64)
            good = (rows["size"] > 0) & (offsets >= 0) & (offsets < log_end)
            good[1:] &= (offsets[1:] > offsets[:-1]) | (rows["size"][:-1] == FILLER_SIZE)
            count = len(good) if good.all() else int(good.argmin())
            if count:
                return start // ENTRY_BYTES + count
        return self._files.min_offset // ENTRY_BYTES

    def _addresses_before(self, end: int) -> Iterator[tuple[int, int]]:
        """Yield queue offset and address of ext addresses in entries before *end*, newest first."""
        for start in reversed(self._files.starts):
            first = start // ENTRY_BYTES
            fields = self._file_rows(start)["tags_code"][: max(end - first, 0)].astype(np.int64)
            for number in np.flatnonzero(fields <= TAGS_CODE_EXT_MAX)[::-1].tolist():
                yield first + number, int(fields[number])

    def _first_address(self) -> int | None:
        """Return the address in the first entry that has one."""
        at = self.min_offset
        while len(rows := self._rows(at)):
            fields = rows["tags_code"].astype(np.int64)
            found = np.flatnonzero(fields <= TAGS_CODE_EXT_MAX)
            if len(found):
                return int(fields[found[0]])
            at += len(rows)
        return None

    def last_before(self, end: int) -> QueueEntry | None:
        """Return the entry before the queue offset *end*, if it is one of a record."""
        file = self._files.file((end - 1) * ENTRY_BYTES) if end > 0 else None
        if file is None:
            return None
        found = self._decode(
            end - 1, self._file_rows(file.start)[end - 1 - file.start // ENTRY_BYTES].item()
        )
        return found if 0 < found.size < FILLER_SIZE else None

    def find_begin(self, log_min_offset: int) -> None:
        """Begin the queue with the first remaining record of the log."""
        self.min_offset = min(self._files.min_offset // ENTRY_BYTES, self.max_offset)
        self.forget_before(log_min_offset)

    def forget_before(self, log_min_offset: int) -> None:
        """Begin the queue with the first remaining record of the log, or at the queue's end.

        Files without an entry of such a record are forgotten, except the file of the last entry,
        which tells where the queue continues. They stay on disk until :meth:`remove_forgotten`.
        """
        self.min_offset = self.first_at_or_after(
            lambda entry: entry.size != FILLER_SIZE and entry.physical_offset >= log_min_offset
        )
        last = max(self.max_offset - 1, 0)
        if self.ext is not None and self.ext.file_count > 1:
            self.ext.forget_before(self._first_address())
        self._files.forget_before(min(self.min_offset, last) * ENTRY_BYTES)

    def remove_forgotten(self) -> None:
        """Remove the forgotten files from disk; may run beside the writer."""
        self._files.remove_forgotten()
        if self.ext is not None:
            self.ext.remove_forgotten()

    def clear_tail(self) -> int:
        """Zero the entries behind ``max_offset``, after recovery; return their number."""
        if self.ext is not None:
            self.ext.cut_tail()
        return -(-self._files.cut(self.max_offset * ENTRY_BYTES, keep=False) // ENTRY_BYTES)

    def prepare_next(self) -> None:
        """Create the next file if the current one is half full; for a thread beside the writer."""
        self._files.prepare_next(self.max_offset * ENTRY_BYTES)
        if self.ext is not None:
            self.ext.prepare_next()

    def flush(self) -> None:
        """Sync all entries to disk; may run beside the writer."""
        end = self.max_offset
        if self.ext is not None:
            self.ext.flush()
        if end > self._flushed:
            self._files.flush(self._flushed * ENTRY_BYTES, end * ENTRY_BYTES)
            self._flushed = end

    def close(self) -> None:
        """Unmap the files."""
        self._files.close()
        if self.ext:
            self.ext.close()

    def _place(self) -> tuple[MappedFile, int]:
        start = self.max_offset * ENTRY_BYTES
        file = self._files.ensure(start)
        return file, start - file.start

    def _file_rows(self, start: int) -> _Rows:
        file = self._files.file(start)
        assert file is not None
        return file.data.view(ENTRY)

    def _rows(self, queue_offset: int) -> _Rows:
        """Return rows from *queue_offset* to the end of its file, within minimum and maximum."""
        if not self.min_offset <= queue_offset < self.max_offset:
            return np.empty(0, ENTRY)
        file = self._files.file(queue_offset * ENTRY_BYTES)
        if file is None:
            return np.empty(0, ENTRY)
        first = file.start // ENTRY_BYTES
        return file.data.view(ENTRY)[queue_offset - first : self.max_offset - first]

    def _decode(self, queue_offset: int, row: tuple[int, int, int]) -> QueueEntry:
        physical_offset, size, field = row
        if field > TAGS_CODE_EXT_MAX:
            return QueueEntry(queue_offset, physical_offset, size, field)
        unit = self.ext.unit(field) if self.ext else None
        tags_code = unit.tags_code if unit else None
        return QueueEntry(queue_offset, physical_offset, size, tags_code, unit)
