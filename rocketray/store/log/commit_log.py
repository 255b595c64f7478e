"""The commit log: every message of a store, in arrival order, in fixed-size mmap'd files.

Layout: files named by their first physical offset, 20 digits. A record never crosses a file
boundary; the rest of a file, at least 8 bytes, is closed with a BLANK record. See record.py
for the bytes.

Invariants
  1. Physical offsets grow. One is used again only if recovery cut its record as torn.
  2. Below ``flushed_offset`` everything survives power loss; below ``max_offset``, the end of the
     process.
  3. One writer. A batch is in one file, all of it or nothing.
  4. Files are created full of zeros, so the file size says nothing: recovery finds the end.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rocketray.errors import CorruptRecordError, MessageTooLargeError, OffsetOutOfRangeError
from rocketray.kernels.append import KEEP_STORE_TIMES, append_records
from rocketray.kernels.layout import (
    BODY_CRC,
    MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET,
    SYS_FLAG,
)
from rocketray.message import PhysicalOffset, StoredMessage
from rocketray.store.batches.batch_form import EncodedBatch
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.mapped_file_queue import MappedFileQueue, Repair, segment_name
from rocketray.store.formats.record import (
    BLANK_BYTES,
    decode_record,
    encode_blank,
    encode_host,
    parse_record,
)

_SIZE_BYTES = 4  # TOTALSIZE, the first field of a record


class CommitLog:
    """The log in one directory. Reads are safe beside the writer, below ``max_offset``."""

    def __init__(
        self,
        directory: Path,
        segment_bytes: int,
        store_host: tuple[str, int],
        *,
        read_only: bool,
        repair: Repair = Repair.NOTHING,
        is_foreign: bool = False,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Find the files; :mod:`.recovery` sets the end of the log before it is used."""
        self.files = MappedFileQueue(
            directory, segment_bytes, read_only=read_only, repair=repair, file_system=file_system
        )
        """Its files, which may hold bytes behind ``max_offset``, too."""
        self.store_host = np.frombuffer(encode_host(store_host), np.uint8)
        self.is_foreign = is_foreign
        """Whether RocketMQ wrote it; its property strings may lack the last separator."""
        self._end = self._flushed = self.files.min_offset

    @property
    def min_offset(self) -> PhysicalOffset:
        """The first remaining offset, which is that of a file: only whole files are removed."""
        return PhysicalOffset(self.files.min_offset)

    @property
    def max_offset(self) -> PhysicalOffset:
        """The offset behind the last record: the next record's, if its file has room."""
        return PhysicalOffset(self._end)

    @property
    def flushed_offset(self) -> PhysicalOffset:
        """The offset below which every record survives power loss."""
        return PhysicalOffset(self._flushed)

    def reserve(self, size: int) -> None:
        """Ensure that *size* bytes of records fit at ``max_offset`` in one file.

        If they do not fit, the current file is closed with a BLANK record.

        Raises:
            MessageTooLargeError: no file is large enough.
            StoreFullError: there is no space for another file. Nothing changed.
        """
        segment_bytes = self.files.segment_bytes
        if size + BLANK_BYTES > segment_bytes:
            raise MessageTooLargeError("a batch of records", size, segment_bytes - BLANK_BYTES)
        free = segment_bytes - self._end % segment_bytes
        if size + BLANK_BYTES <= free:
            self.files.ensure(self._end, size + BLANK_BYTES)
            return
        # The next file first: if there is no space for it, the log has not changed.
        self.files.ensure(self._end + free, size + BLANK_BYTES)
        closing = self.files.ensure(self._end, BLANK_BYTES)
        closing.write(self._end - closing.start, encode_blank(free))
        self._end += free

    def append(
        self, batch: EncodedBatch, queue_id: int, first_queue_offset: int, store_timestamp_ms: int
    ) -> PhysicalOffset:
        """Store a batch for which :meth:`reserve` made room; return its first physical offset.

        Records of prepared and rolled back transactions get the queue offset 0.

        Raises:
            CorruptRecordError: the batch's records do not agree with its sizes, or were not encoded
                for this store; nothing changed.
        """
        first, sizes = self._end, batch.sizes
        segment = self.files.ensure(first, len(batch.records))
        fields = (
            queue_id,
            first_queue_offset,
            first,
            KEEP_STORE_TIMES if batch.keeps_store_times else store_timestamp_ms,
            self.store_host,
            batch.transaction,
        )
        position = append_records(
            segment.data, first - segment.start, batch.records, sizes, *fields
        )
        if position < 0:
            raise _refused(batch)
        self._end = segment.start + position
        return PhysicalOffset(first)

    def advance(self, end: int) -> None:
        """Move the end of the log to *end*: a kernel wrote whole records (append_window.py)."""
        self._end = end

    def read(self, physical_offset: int, size: int) -> bytes:
        """Return a copy of *size* bytes, which lie in one file; a view would block :meth:`close`.

        Raises:
            OffsetOutOfRangeError: the log does not hold all of them.
        """
        segment = self.files.file(physical_offset)
        end = physical_offset + size
        if segment is None or size < 0 or end > min(self._end, segment.start + segment.size):
            raise OffsetOutOfRangeError(
                f"commit log {self.files.directory}", physical_offset, self.min_offset, self._end
            )
        return segment.read(physical_offset - segment.start, size)

    def message(self, physical_offset: int, size: int | None = None) -> StoredMessage:
        """Return the message of the record at *physical_offset*, of *size* bytes if known.

        Raises:
            OffsetOutOfRangeError: the log does not reach there.
            CorruptRecordError: there is no whole record.
        """
        if size is None:
            size = int.from_bytes(self.read(physical_offset, _SIZE_BYTES), "big", signed=True)
        path = str(self.files.directory)
        segment_end = self.files.start_of(physical_offset) + self.files.segment_bytes
        if not 0 < size <= min(self._end, segment_end) - physical_offset:
            raise CorruptRecordError(path, physical_offset, f"invalid record size: {size} bytes")
        return decode_record(self.read(physical_offset, size), path, physical_offset)

    def store_timestamp_ms(self, physical_offset: int, size: int) -> int | None:
        """Return the store time of the record of *size* bytes at an offset, or None without one."""
        segment = self.files.file(physical_offset)
        if segment is None:
            return None
        start = physical_offset - segment.start
        with segment.view() as buffer:
            fields = parse_record(buffer, start, min(start + max(size, 0), segment.size))
        if isinstance(fields, str):
            return None
        is_this = (fields.size, fields.physical_offset) == (size, physical_offset)
        return fields.store_timestamp_ms if is_this else None

    def check_places(self) -> None:
        """Raise :class:`CorruptRecordError` if a file has the content of another one."""
        starts = set(self.files.starts)
        for start in self.files.starts:
            head = self.files.read(start, SYS_FLAG)
            magic = int.from_bytes(head[MAGIC:BODY_CRC], "big", signed=True)
            told = int.from_bytes(head[PHYSICAL_OFFSET:], "big", signed=True)
            if magic in (MAGIC_V1, MAGIC_V2) and told != start and told in starts:
                raise CorruptRecordError(
                    str(self.files.directory / segment_name(start)),
                    start,
                    f"the file begins with the record of {segment_name(told)}; give each its own "
                    "name again, or recover the rest: rocketray store recover",
                )

    def cut(self, end: int, *, flushed: int) -> int:
        """End the log at *end*, on disk up to *flushed*; return the bytes kept aside.

        The bytes behind *end* are moved out of the log.
        """
        kept = self.files.cut(end, keep=True)
        self._end, self._flushed = end, min(flushed, end)
        return kept

    def trust_end(self, end: int) -> None:
        """End the log at *end*, all of it on disk; change no file."""
        self._end = self._flushed = end

    def flush(self) -> PhysicalOffset:
        """Sync everything up to the current ``max_offset`` to disk; return that offset.

        May run beside the writer; two flushes may not run at once.
        """
        end = self._end
        if end > self._flushed:
            self.files.flush(self._flushed, end)
            self._flushed = end
        return PhysicalOffset(end)


def _refused(batch: EncodedBatch) -> CorruptRecordError:
    return CorruptRecordError(
        "a batch",
        0,
        f"its bytes are not {len(batch.sizes)} complete records with a store host of this store's "
        "width, all in one transaction state, without inner batches",
    )
