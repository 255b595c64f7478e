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

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rocketray.errors import CorruptRecordError, MessageTooLargeError, OffsetOutOfRangeError
from rocketray.kernels.append import KEEP_STORE_TIMES, append_records
from rocketray.kernels.layout import MAGIC, MAGIC_V1
from rocketray.message import PhysicalOffset, StoredMessage
from rocketray.store.batches.encoded_batch import EncodedBatch
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.mapped_file import MappedFile
from rocketray.store.files.mapped_file_queue import MappedFileQueue, Mend
from rocketray.store.formats.inner_batch import unwrap
from rocketray.store.formats.property_crc import fill_crcs, rows_with_crc
from rocketray.store.formats.record import (
    BLANK_BYTES,
    RecordFields,
    checksums_match,
    decode_record,
    encode_blank,
    encode_host,
    is_blank,
    parse_record,
)

__all__ = ["CommitLog"]

_SIZE_BYTES = 4
_MAGIC_BEGIN = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]  # of V2 too
_LOG = logging.getLogger(__name__)


class CommitLog:
    """The log in one directory. Reads are safe beside the writer, below ``max_offset``."""

    def __init__(
        self,
        directory: Path,
        segment_bytes: int,
        store_host: tuple[str, int],
        *,
        read_only: bool,
        mend: Mend = Mend.NOTHING,
        is_foreign: bool = False,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Find the files; :mod:`.recovery` sets the end of the log before it is used."""
        self._files = MappedFileQueue(
            directory, segment_bytes, read_only=read_only, mend=mend, file_system=file_system
        )
        self.store_host = np.frombuffer(encode_host(store_host), np.uint8)
        self.is_foreign = is_foreign
        """Whether RocketMQ wrote it; its property strings may lack the last separator."""
        self._end = self._flushed = self._files.min_offset

    @property
    def min_offset(self) -> PhysicalOffset:
        """The first remaining offset."""
        return PhysicalOffset(self._files.min_offset)

    @property
    def max_offset(self) -> PhysicalOffset:
        """The offset behind the last record: the next record's, if its file has room."""
        return PhysicalOffset(self._end)

    @property
    def flushed_offset(self) -> PhysicalOffset:
        """The offset below which every record survives power loss."""
        return PhysicalOffset(self._flushed)

    @property
    def segment_starts(self) -> list[int]:
        """The first offset of each file, ascending; the last files may still be empty."""
        return self._files.starts

    @property
    def directory(self) -> Path:
        """The directory of its files."""
        return self._files.directory

    @property
    def mended(self) -> list[int]:
        """The first offsets of files that were short or missing and were repaired."""
        return list(self._files.mended)

    @property
    def files_end(self) -> int:
        """The offset behind the last file, independent of the end of the log."""
        return self._files.end

    @property
    def segment_bytes(self) -> int:
        """The size of each file."""
        return self._files.segment_bytes

    def reserve(self, size: int) -> None:
        """Ensure that *size* bytes of records fit at ``max_offset`` in one file.

        If they do not fit, the current file is closed with a BLANK record.

        Raises:
            MessageTooLargeError: no file is large enough.
            StoreFullError: there is no space for another file. Nothing changed.
        """
        segment_bytes = self._files.segment_bytes
        if size + BLANK_BYTES > segment_bytes:
            raise MessageTooLargeError("a batch of records", size, segment_bytes - BLANK_BYTES)
        free = segment_bytes - self._end % segment_bytes
        if size + BLANK_BYTES <= free:
            self._files.ensure(self._end)
            return
        self._files.ensure(self._end + free)
        closing = self._files.ensure(self._end)
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
        segment = self._files.ensure(first)
        rest = (
            queue_id,
            first_queue_offset,
            first,
            KEEP_STORE_TIMES if batch.keeps_store_times else store_timestamp_ms,
            self.store_host,
            batch.transaction,
        )
        records = batch.records
        if rows := rows_with_crc(records, sizes):
            # The CRC covers the filled-in fields, so they are filled in once in a copy and once in
            # place.
            records = np.empty(len(records), np.uint8)
            if append_records(records, 0, batch.records, sizes, *rest) < 0:
                raise _refused(batch)
            fill_crcs(records, sizes, rows)
        position = append_records(segment.data, first - segment.start, records, sizes, *rest)
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
        segment = self._files.file(physical_offset)
        end = physical_offset + size
        if segment is None or size < 0 or end > min(self._end, segment.start + segment.size):
            raise OffsetOutOfRangeError(
                f"commit log {self._files.directory}", physical_offset, self.min_offset, self._end
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
        path = str(self._files.directory)
        segment_end = self._files.start_of(physical_offset) + self._files.segment_bytes
        if not 0 < size <= min(self._end, segment_end) - physical_offset:
            raise CorruptRecordError(path, physical_offset, f"a size of {size} bytes cannot be")
        return decode_record(self.read(physical_offset, size), path, physical_offset)

    def store_timestamp_ms(self, physical_offset: int, size: int) -> int | None:
        """Return the store time of the record of *size* bytes at an offset, or None without one."""
        segment = self._files.file(physical_offset)
        if segment is None:
            return None
        start = physical_offset - segment.start
        with segment.view() as buffer:
            fields = parse_record(buffer, start, min(start + max(size, 0), segment.size))
        if isinstance(fields, str):
            return None
        is_this = (fields.size, fields.physical_offset) == (size, physical_offset)
        return fields.store_timestamp_ms if is_this else None

    def segment(self, physical_offset: int) -> MappedFile | None:
        """Return the file of *physical_offset*; for recovery, which reads behind the end."""
        return self._files.file(physical_offset)

    def walk(self, start: int, *, verify: bool) -> Iterator[tuple[int, RecordFields, memoryview]]:
        """Yield each whole record from *start* on: its offset, its fields, and their buffer.

        Ends at the first place without a record, which may hold a torn one; BLANK records are
        skipped. With *verify* a body must match its CRC. Reads beyond ``max_offset``: recovery
        finds it this way. The buffer is valid until the next step.
        """
        offset = start
        while (segment := self._files.file(offset)) is not None:
            with segment.view() as buffer:
                position = offset - segment.start
                while not isinstance(fields := parse_record(buffer, position, segment.size), str):
                    here = segment.start + position
                    if fields.physical_offset != here or fields.queue_id < 0:
                        return
                    if verify and not checksums_match(buffer, position, fields):
                        return
                    yield here, fields, buffer
                    position += fields.size
                if not is_blank(buffer, position, segment.size):
                    return
            offset = segment.start + segment.size

    def scan(self, start: int) -> Iterator[StoredMessage]:
        """Yield the messages from *start*, a record's offset, up to ``max_offset``.

        An inner batch, which only RocketMQ writes, is unpacked. A place without a whole record
        is logged and skipped.
        """
        at = start
        while at < self._end:
            for offset, fields, _ in self.walk(at, verify=True):
                at = offset + fields.size
                if offset >= self._end:
                    return
                try:
                    record = self.message(offset, fields.size)
                    messages = [*unwrap(record, str(self._files.directory))]
                except (CorruptRecordError, MessageTooLargeError) as error:
                    _LOG.warning("left out: %s", error)
                else:
                    yield from messages
            at = self.end_after(at)
            if at < self._end:
                found = self.next_record(at)
                following = self._end if found is None else found[0]
                _LOG.warning(
                    "%s: offsets %d to %d hold no whole record and are left out",
                    self._files.directory,
                    at,
                    following,
                )
                at = following

    def next_record(self, offset: int) -> tuple[int, int] | None:
        """Return offset and store time of the first whole record behind *offset*, which has none.

        Found by its magic code; it must hold its own physical offset, and match its CRC.
        """
        position = offset - self._files.start_of(offset) + 1
        for segment in self._files.files_between(offset, self._files.end):
            found = _find_record(segment, position)
            if found is not None:
                return found
            position = 0
        return None

    def end_after(self, offset: int) -> int:
        """Return the end of a log whose last record ends at *offset*: there, or in the next file.

        A BLANK record at *offset* counts only when the next file was created.
        """
        while (segment := self._files.file(offset)) is not None:
            with segment.view() as buffer:
                closed = is_blank(buffer, offset - segment.start, segment.size)
            following = segment.start + segment.size
            if not closed or self._files.file(following) is None:
                break
            offset = following
        return offset

    def bytes_behind(self, end: int) -> int:
        """Return how many bytes from the offset *end* on are not zero."""
        return sum(
            int(np.count_nonzero(file.data[max(end - file.start, 0) :]))
            for file in self._files.files_between(end, self._files.end)
        )

    def cut(self, end: int, *, flushed: int) -> int:
        """End the log at *end*, on disk up to *flushed*; return the bytes kept aside.

        The bytes behind *end* are moved out of the log.
        """
        kept = self._files.cut(end, keep=True)
        self._end, self._flushed = end, min(flushed, end)
        return kept

    def trust_end(self, end: int) -> None:
        """End the log at *end*, all of it on disk; change no file."""
        self._end = self._flushed = end

    def forget_before(self, physical_offset: int) -> None:
        """Begin the log with the file of *physical_offset*, at the latest with the last one.

        The files before it stay on disk until :meth:`remove_forgotten`.
        """
        self._files.forget_before(physical_offset)

    def remove_forgotten(self) -> None:
        """Remove the forgotten files from disk; may run beside the writer."""
        self._files.remove_forgotten()

    def prepare_next(self) -> None:
        """Create the next file if the current one is half full; for a thread beside the writer."""
        self._files.prepare_next(self._end)

    def flush(self) -> PhysicalOffset:
        """Sync everything up to the current ``max_offset`` to disk; return that offset.

        May run beside the writer; two flushes may not run at once.
        """
        end = self._end
        if end > self._flushed:
            self._files.flush(self._flushed, end)
            self._flushed = end
        return PhysicalOffset(end)

    def close(self) -> None:
        """Unmap the files."""
        self._files.close()


def _refused(batch: EncodedBatch) -> CorruptRecordError:
    return CorruptRecordError(
        "a batch",
        0,
        f"its bytes are not {len(batch.sizes)} whole records with a store host of this store's "
        "width, all in one state of a transaction, and no inner batch among them",
    )


def _find_record(segment: MappedFile, position: int) -> tuple[int, int] | None:
    """Return the first whole record that begins at or behind *position* of *segment*."""
    with segment.view() as buffer:
        at = segment.find(_MAGIC_BEGIN, position + MAGIC)
        while at >= 0:
            start = at - MAGIC
            fields = parse_record(buffer, start, segment.size)
            if (
                not isinstance(fields, str)
                and fields.physical_offset == segment.start + start
                and fields.queue_id >= 0
                and checksums_match(buffer, start, fields)
            ):
                return fields.physical_offset, fields.store_timestamp_ms
            at = segment.find(_MAGIC_BEGIN, at + 1)
    return None
