"""Reading of one queue of a store that another process writes.

Rules
  1. No lock and no directory listing: files are found by arithmetic, and mapped read-only.
  2. Nothing beyond the visible queue offset is read. The caller knows it, from the watermark.
  3. Results are copies, except ``SegmentSpans.segment``, which keeps its file mapped.
  4. A queue entry is not trusted: the record must be whole, of just that size, at just that place,
     and hold this queue's id and this queue offset. A body must match its CRC.

A reader belongs to one thread at a time; a process may have many.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketray.base.config import CONSUME_QUEUE_ENTRY_BYTES, StoreConfig
from rocketray.errors import OffsetOutOfRangeError
from rocketray.kernels.consume_queue import match_tags, pick_entries, read_entries
from rocketray.kernels.layout import TAGS_CODE_EXT_MAX
from rocketray.kernels.properties import join_names
from rocketray.kernels.records import (
    Conditions,
    copy_bodies,
    find_record_properties,
    judge_records,
)
from rocketray.kernels.spans import end_of_segment
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.segment_cache import SegmentCache
from rocketray.store.files.store_settings import settle_config
from rocketray.store.queues.ext_reader import BitTest, ExtReader
from rocketray.store.queues.gaps_file import gaps_of

from .record_spans import EntryColumns, RecordReader, SegmentSpans

_Int64s = npt.NDArray[np.int64]
_Int32s = npt.NDArray[np.int32]


class QueueReader(RecordReader):
    """A reader of one (topic, queue id) of a store directory."""

    def __init__(
        self,
        directory: Path,
        topic: str,
        queue_id: int,
        config: StoreConfig | None = None,
        *,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Read the store's sizes, from *config* if given, as for RocketMQ's own directories.

        Raises:
            ConfigError: *config* and the directory's ``store.json`` disagree, or both are missing.
        """
        config = settle_config(directory, config, read_only=True, file_system=file_system)
        self.directory = directory
        self.store_host = config.store_host
        """The address in the records that this store wrote; each store of a node has its own."""
        self.topic = topic
        self.queue_id = queue_id
        self.gaps = gaps_of(directory, topic, queue_id, file_system)
        """The queue offsets that no message had when the reader was opened."""
        self._log = SegmentCache(
            directory / "commitlog", config.commit_log_segment_bytes, file_system=file_system
        )
        self._queue = SegmentCache(
            directory / "consumequeue" / topic / str(queue_id),
            config.consume_queue_segment_entries * CONSUME_QUEUE_ENTRY_BYTES,
            file_system=file_system,
        )
        self._segment_entries = config.consume_queue_segment_entries
        self._ext = ExtReader(
            directory / "consumequeue_ext" / topic / str(queue_id),
            config.consume_queue_ext_segment_bytes,
            file_system,
        )

    def entries(self, start: int, stop: int) -> EntryColumns:
        """Return the entries from queue offset *start* up to, not including, *stop*.

        A gap has none (queue_gaps.py).

        Raises:
            OffsetOutOfRangeError: the queue has no such entries, or not any more.
        """
        columns = EntryColumns.room_for(stop - start)
        addresses = 0
        for raw, first, count, queue_offset in self._queue_parts(start, stop):
            addresses += read_entries(
                *(raw, first, count, queue_offset, *columns.arrays()), queue_offset - start
            )
        if addresses:
            columns.tags_codes[:] = self._ext.resolve(columns.tags_codes)
        return columns if columns.sizes.all() else columns.select(columns.sizes != 0)

    def match_tags(self, start: int, stop: int, codes: _Int32s | None) -> EntryColumns:
        """Return the entries whose tags code is in *codes* int32[c], or is lost; all for None.

        Entries of messages lost in a hole of the log match nothing.
        """
        if codes is None:
            return self.entries(start, stop).without_holes()
        codes = np.ascontiguousarray(codes, np.int32)
        parts = []
        for raw, first, count, queue_offset in self._queue_parts(start, stop):
            numbers = np.empty(count, np.int64)  # only the part with matches is ever touched
            hits = match_tags(raw, first, count, codes, numbers)
            if hits:
                part = EntryColumns.room_for(hits)
                if pick_entries(raw, numbers, hits, queue_offset - first, *part.arrays()):
                    part = self._with_tags(part, codes)
                parts.append(part)
        return EntryColumns.concatenated(parts).without_holes()

    def match_bits(
        self, start: int, stop: int, test: BitTest, limit: int
    ) -> tuple[EntryColumns, int]:
        """Return at most *limit* entries that no filter bitmap excludes; and where it ended."""
        raw, first, count, queue_offset = next(self._queue_parts(start, stop))
        numbers = np.empty(min(count, limit), np.int64)
        found, at = self._ext.match_bits(raw, first, count, test, numbers)
        part = EntryColumns.room_for(found)
        if pick_entries(raw, numbers, found, queue_offset - first, *part.arrays()):
            part.tags_codes[:] = self._ext.resolve(part.tags_codes)
        return part.without_holes(), start + at - first

    def _with_tags(self, found: EntryColumns, codes: _Int32s) -> EntryColumns:
        """Return the entries of *found* that the units behind their addresses do not exclude."""
        tags_codes = found.tags_codes[:] = self._ext.resolve(found.tags_codes)
        unknown = tags_codes <= TAGS_CODE_EXT_MAX
        return found.select(unknown | np.isin(tags_codes.astype(np.int32), codes))

    def records(self, entries: EntryColumns) -> list[SegmentSpans]:
        """Return the parts of the entries' records, in order; a new item for each segment.

        Raises:
            OffsetOutOfRangeError: a segment is missing, or was deleted.
            CorruptRecordError: an entry does not point to a whole record of its size.
        """
        parts = []
        first, segment_bytes = 0, self._log.segment_bytes
        while first < len(entries):
            end = end_of_segment(entries.physical_offsets, segment_bytes, first)
            part = entries.select(slice(first, end))
            file = self._log.get(int(part.physical_offsets[0]))
            positions = part.physical_offsets - file.start
            parts.append(self._take_apart(file.data, str(file.path), positions, part))
            first = end
        return parts

    def bodies(self, entries: EntryColumns) -> list[bytes]:
        """Return the messages' bodies, inflated if stored compressed; raise as ``records``."""
        copied = self._ordinary_bodies(entries)
        return (
            super().bodies(entries) if copied is None else cast("list[bytes]", copied.to_pylist())
        )

    def body_array(self, entries: EntryColumns) -> Any:
        """Return the same as Arrow ``binary``."""
        copied = self._ordinary_bodies(entries)
        return super().body_array(entries) if copied is None else copied

    def _ordinary_bodies(self, entries: EntryColumns) -> Any | None:
        """Return bodies of ordinary records of one segment, checked and copied, else None."""
        room = int(entries.sizes.sum(dtype=np.int64))
        # Sizes from the queue are not trusted: memory is allocated only for what one file can hold.
        if not len(entries) or not 0 <= room <= self._log.segment_bytes:
            return None
        file = self._log.get(int(entries.physical_offsets[0]))
        bounds, data = np.empty(len(entries) + 1, np.int32), np.empty(room, np.uint8)
        found = entries.physical_offsets, entries.sizes, entries.queue_offsets
        if not copy_bodies(file.data, file.start, *found, self.queue_id, bounds, data):
            return None
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data[: bounds[-1]])]
        return pa.Array.from_buffers(pa.binary(), len(entries), buffers)

    def find_properties(
        self, entries: EntryColumns, names: tuple[str, ...]
    ) -> Iterator[tuple[npt.NDArray[np.uint8], _Int64s, _Int64s]]:
        """Yield segment, starts and sizes int64[names, n] of named properties, for each segment.

        The fast way to the result of ``records`` and ``SegmentSpans.find``; raises as they do.
        """
        joined, bounds = join_names(names)
        count, first = len(entries), 0
        shape = len(names), count
        starts, sizes = np.empty(shape, np.int64), np.empty(shape, np.int64)
        while first < count:
            file = self._log.get(int(entries.physical_offsets[first]))
            last = find_record_properties(
                file.data,
                file.start,
                entries.physical_offsets,
                entries.sizes,
                entries.queue_offsets,
                self.queue_id,
                first,
                joined,
                bounds,
                starts,
                sizes,
            )
            if last == first:
                self.records(entries.select(slice(first, first + 1)))  # raises, with the reason
            part = slice(first, last)
            if last - first == count:  # the usual case; a view of all takes time as well
                yield file.data, starts, sizes
            else:
                rows = np.ascontiguousarray(starts[:, part]), np.ascontiguousarray(sizes[:, part])
                yield (file.data, *rows)
            first = last

    def judge(self, entries: EntryColumns, conditions: Conditions) -> npt.NDArray[np.uint8] | None:
        """Return the state of each entry's record by *conditions*: uint8[n].

        None in an unusual case, such as records in two segments; then
        ``find_properties`` finds them, or raises. Raises :class:`OffsetOutOfRangeError` as it does.
        """
        if not len(entries):
            return None
        file = self._log.get(int(entries.physical_offsets[0]))
        states = np.empty(len(entries), np.uint8)
        is_done = judge_records(
            file.data,
            file.start,
            entries.physical_offsets,
            entries.sizes,
            entries.queue_offsets,
            self.queue_id,
            *conditions,
            states,
        )
        return states if is_done else None

    def map_records(self, entries: EntryColumns) -> None:
        """Map the files of the records of *entries*, ascending, so that no deletion takes effect.

        Raises:
            OffsetOutOfRangeError: one was deleted already.
        """
        if len(entries):
            size = self._log.segment_bytes
            first, last = int(entries.physical_offsets[0]), int(entries.physical_offsets[-1])
            for start in range(first - first % size, last + 1, size):
                self._log.get(start)

    def let_go_before(self, queue_offset: int) -> None:
        """Unmap the files without data from *queue_offset*, a visible one, on.

        If that offset was deleted by now, nothing is unmapped: the next call is for a later one.
        """
        try:
            entries = self.entries(queue_offset, queue_offset + 1)
        except OffsetOutOfRangeError:
            return
        self._queue.let_go_before(queue_offset * CONSUME_QUEUE_ENTRY_BYTES)
        self._log.let_go_before(int(entries.physical_offsets[0]))

    def close(self) -> None:
        self._log.close()
        self._queue.close()
        self._ext.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _queue_parts(
        self, start: int, stop: int
    ) -> Iterator[tuple[npt.NDArray[np.uint8], int, int, int]]:
        """Yield segment, first entry in it, count, and the queue offset of the first; in order."""
        assert 0 <= start <= stop
        while start < stop:
            first = start % self._segment_entries
            count = min(stop - start, self._segment_entries - first)
            raw = self._queue.get(start * CONSUME_QUEUE_ENTRY_BYTES).data
            yield raw, first, count, start
            start += count
