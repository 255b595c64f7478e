"""A consume queue: for each message of one (topic, queueId) an entry of 20 bytes, in order.

Entry: i64 physical offset | i32 record size | i64 tags code, or the address of an ext unit.
Entry n is at byte 20 n of the queue's files. Source: RocketMQ 5.3.3, ``ConsumeQueue``.

Invariants
  1. The log is the source of truth: every entry below ``max_offset`` can be rebuilt from it.
  2. Entries are written in place and never zeroed below ``max_offset``, so a reader in another
     process that knows an old maximum is always right.
  3. A queue that begins above 0 has filler entries before its begin in its first file.
  4. Some offsets may be in a gap: no message has them, and the files have zeros (queue_gaps.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.base.config import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from rocketray.errors import OffsetOutOfRangeError
from rocketray.kernels.append import append_queue_entries
from rocketray.kernels.layout import TAGS_CODE_EXT_MAX
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.mapped_file import MappedFile
from rocketray.store.files.mapped_file_queue import MappedFileQueue, Repair
from rocketray.store.files.written_sums import WrittenSums

from .consume_queue_ext import ConsumeQueueExt
from .ext_unit import ExtUnit
from .queue_gaps import NO_GAPS, QueueGaps

ENTRY = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
FILLER_SIZE = 0x7FFFFFFF  # RocketMQ's, of the filler entries of invariant 3
HOLE_SIZE = 1  # in the entry of a message lost in a hole of the log (replay.py)
_UNFLUSHED_MAX = 1 << 22  # messages: the longest gap after a power failure
_UNFLUSHED_FILES_MAX = 32  # a gap's files are all created, so small ones make it shorter
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


def place_of(files: MappedFileQueue, queue_offset: int, count: int) -> tuple[MappedFile, int]:
    """Return the file of an entry, created if it is missing, and the entry's position in it.

    The file has blocks for *count* entries from there, as far as it reaches.
    """
    start = queue_offset * ENTRY_BYTES
    file = files.ensure(start, count * ENTRY_BYTES)
    return file, start - file.start


def decode_entry(
    ext: ConsumeQueueExt | None, queue_offset: int, row: tuple[int, int, int]
) -> QueueEntry:
    """Return the entry of a *row* of ``ENTRY``; its unit comes from *ext*."""
    physical_offset, size, field = row
    if field > TAGS_CODE_EXT_MAX:
        return QueueEntry(queue_offset, physical_offset, size, field)
    unit = ext.unit(field) if ext else None
    tags_code = unit.tags_code if unit else None
    return QueueEntry(queue_offset, physical_offset, size, tags_code, unit)


class ConsumeQueue:
    """The entries of one queue. Reads are safe beside the writer, below ``max_offset``."""

    def __init__(
        self,
        directory: Path,
        segment_entries: int,
        *,
        read_only: bool,
        repair: Repair = Repair.NOTHING,
        ext: ConsumeQueueExt | None = None,
        gaps: QueueGaps = NO_GAPS,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Find the files; recovery sets the queue's end and begin before it is used."""
        self.files = MappedFileQueue(
            directory,
            segment_entries * ENTRY_BYTES,
            read_only=read_only,
            repair=repair,
            file_system=file_system,
        )
        """Its files, which may hold entries behind ``max_offset``, too."""
        self.sums = WrittenSums(self.files)
        """The checksums of the entries up to the last flush."""
        self.lost_end = 0
        """Where the files ended, if one in the middle was short or missing; else 0."""
        if self.files.repaired and min(self.files.repaired) < self.files.starts[-1]:
            self.lost_end = self.files.end // ENTRY_BYTES
            # Recovery trusts the files before the last one with an entry, so none may stay behind
            # the lost part; the log has all of its records.
            self.files.cut(min(self.files.repaired), keep=False)
        self.ext = ext
        """The units that entries may have; None if no entry ever had one."""
        self.adds_units = ext is not None
        """Whether new entries get a unit in ConsumeQueueExt; the writer may change it."""
        self.segment_entries = segment_entries
        self.unflushed_max = min(_UNFLUSHED_MAX, _UNFLUSHED_FILES_MAX * segment_entries)
        """How many messages may not be on disk, so the length of a gap."""
        self.gaps = gaps
        """The offsets that no message has."""
        self.min_offset = self.max_offset = self.files.min_offset // ENTRY_BYTES
        self.logged_offset = self.max_offset
        """The records of the messages before this offset are on disk."""
        self._flushed = self.max_offset
        self.has_lost_units = False
        """Whether recovery found entries without their ext units."""

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
            file = self.files.ensure(start, end - start)
            start = file.start + file.size

    def segment(self) -> MappedFile | None:
        """Return the file for the next entry, if it was created."""
        return self.files.file(self.max_offset * ENTRY_BYTES)

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
            file, position = place_of(self.files, self.max_offset, count - done)
            part = min(count - done, (file.size - position) // ENTRY_BYTES)
            append_queue_entries(file.data, position, sizes, tags_codes, first_physical, done, part)
            done += part
            self.max_offset += part

    def columns(self, start: int, stop: int) -> tuple[_Int64s, _Int32s, _Int64s]:
        """Return physical offsets, sizes and third fields of the entries from *start* to *stop*.

        As in the files, also beyond ``max_offset``; fewer where the files end.
        """
        parts = [np.empty(0, ENTRY)]
        for file in self.files.files_between(start * ENTRY_BYTES, stop * ENTRY_BYTES):
            first = file.start // ENTRY_BYTES
            parts.append(file.data.view(ENTRY)[max(start - first, 0) : stop - first])
        rows = np.concatenate(parts)
        return (
            rows["physical_offset"].astype(np.int64),
            rows["size"].astype(np.int32),
            rows["tags_code"].astype(np.int64),
        )

    def restart_at(self, queue_offset: int) -> None:
        """Drop all entries and begin the queue at *queue_offset*; for recovery."""
        self.files.cut(-1, keep=False)
        if self.ext is not None:
            self.ext.clear()
        file = self.files.ensure(queue_offset * ENTRY_BYTES, ENTRY_BYTES)
        count = queue_offset - file.start // ENTRY_BYTES
        # RocketMQ's fillers, so that a broker finds the begin of the queue, too.
        file.write(0, np.array([(0, FILLER_SIZE, 0)] * count, ENTRY).tobytes())
        self.min_offset = self.max_offset = queue_offset
        self._flushed = file.start // ENTRY_BYTES

    def entry(self, queue_offset: int) -> QueueEntry:
        """Return the entry at *queue_offset*; raise :class:`OffsetOutOfRangeError`."""
        rows = self._rows(queue_offset)
        if not len(rows):
            raise OffsetOutOfRangeError(
                f"consume queue {self.files.directory}",
                queue_offset,
                self.min_offset,
                self.max_offset,
            )
        return decode_entry(self.ext, queue_offset, rows[0].item())

    def entries(self, queue_offset: int) -> Iterator[QueueEntry]:
        """Yield the entries from *queue_offset* to the end of its file or the next gap."""
        rows = self._rows(queue_offset)
        for start in range(0, len(rows), _BLOCK_ENTRIES):
            for at, row in enumerate(
                rows[start : start + _BLOCK_ENTRIES].tolist(), queue_offset + start
            ):
                yield decode_entry(self.ext, at, row)

    def next_file(self, queue_offset: int) -> int:
        """Return the first queue offset of the file after that of *queue_offset*."""
        return queue_offset + self.segment_entries - queue_offset % self.segment_entries

    def first_at_or_after(self, key: Callable[[QueueEntry], bool]) -> int:
        """Return the first queue offset whose entry satisfies *key*: false, then true for all.

        ``max_offset`` when no entry does.
        """
        return self.gaps.find(lambda at: key(self.entry(at)), self.min_offset, self.max_offset)

    def _first_address(self) -> int | None:
        """Return the address in the first entry that has one."""
        at = self.gaps.after(self.min_offset)
        while len(rows := self._rows(at)):
            fields = rows["tags_code"].astype(np.int64)
            found = np.flatnonzero(fields <= TAGS_CODE_EXT_MAX)
            if len(found):
                return int(fields[found[0]])
            at = self.gaps.after(at + len(rows))
        return None

    def forget_before(self, log_min_offset: int) -> None:
        """Begin the queue with the first remaining record of the log, or at the queue's end.

        Files without an entry of such a record are forgotten, except the file of the last entry,
        which tells where the queue continues. They stay on disk until :meth:`remove_forgotten`.
        """
        self.min_offset = self.first_at_or_after(
            lambda entry: entry.size != FILLER_SIZE and entry.physical_offset >= log_min_offset
        )
        last = max(self.max_offset - 1, 0)
        if self.ext is not None and len(self.ext.files.starts) > 1:
            self.ext.forget_before(self._first_address())
        self.files.forget_before(min(self.min_offset, last) * ENTRY_BYTES)

    def remove_forgotten(self) -> None:
        """Remove the forgotten files from disk; may run beside the writer."""
        self.files.remove_forgotten()
        if self.ext is not None:
            self.ext.files.remove_forgotten()

    def prepare_next(self) -> None:
        """Create the next file if the current one is half full; for a thread beside the writer."""
        self.files.prepare_next(self.max_offset * ENTRY_BYTES)
        if self.ext is not None:
            self.ext.prepare_next()

    def flush(self) -> None:
        """Sync all entries to disk; may run beside the writer."""
        end = self.max_offset
        if self.ext is not None:
            # Units before the entries that point to them. The end was read first: the units of the
            # entries below it are all there.
            self.ext.flush()
        if end > self._flushed:
            self.files.flush(self._flushed * ENTRY_BYTES, end * ENTRY_BYTES)
            self._flushed = end
        self.sums.cover(end * ENTRY_BYTES)

    def close(self) -> None:
        self.files.close()
        if self.ext:
            self.ext.files.close()

    def _rows(self, queue_offset: int) -> _Rows:
        """Return rows from *queue_offset* to the end of its file or the next gap.

        None outside of the queue, or in a gap.
        """
        first_gap = next(self.gaps.between(queue_offset, self.max_offset), None)
        stop = self.max_offset if first_gap is None else first_gap[0]
        if not self.min_offset <= queue_offset < stop:
            return np.empty(0, ENTRY)
        file = self.files.file(queue_offset * ENTRY_BYTES)
        if file is None:
            return np.empty(0, ENTRY)
        first = file.start // ENTRY_BYTES
        return file.data.view(ENTRY)[queue_offset - first : stop - first]
