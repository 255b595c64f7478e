"""Walks along the files of a commit log, record by record: recovery, verification and scans.

A walk does not know the end of the log: it reads what stands in the files, and recovery finds the
end this way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np

from rocketray.errors import CorruptRecordError, MessageTooLargeError
from rocketray.kernels.layout import MAGIC, MAGIC_V1
from rocketray.message import StoredMessage
from rocketray.store.files.mapped_file import MappedFile
from rocketray.store.files.mapped_file_queue import MappedFileQueue
from rocketray.store.formats.inner_batch import unwrap
from rocketray.store.formats.record import RecordFields, checksums_match, is_blank, parse_record

from .commit_log import CommitLog

_LOG = logging.getLogger(__name__)
_MAGIC_BEGIN = MAGIC_V1.to_bytes(4, "big", signed=True)[:3]  # V2 differs in the last byte


def walk(
    files: MappedFileQueue, start: int, *, verify: bool
) -> Iterator[tuple[int, RecordFields, memoryview]]:
    """Yield each whole record from *start* on: its offset, its fields, and their buffer.

    Ends at the first place without a record, which may hold a torn one; BLANK records are
    skipped. With *verify* a body must match its CRC. The buffer is valid until the next step.
    """
    offset = start
    while (segment := files.file(offset)) is not None:
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


def scan(log: CommitLog, start: int) -> Iterator[StoredMessage]:
    """Yield the messages from *start*, a record's offset, up to ``max_offset``.

    An inner batch, which only RocketMQ writes, is unpacked. A place without a whole record
    is logged and skipped.
    """
    at = start
    while at < log.max_offset:
        for offset, fields, _ in walk(log.files, at, verify=True):
            at = offset + fields.size
            if offset >= log.max_offset:
                return
            try:
                record = log.message(offset, fields.size)
                messages = [*unwrap(record, str(log.files.directory))]
            except (CorruptRecordError, MessageTooLargeError) as error:
                _LOG.warning("skipped: %s", error)
            else:
                yield from messages
        at = end_after(log.files, at)
        if at < log.max_offset:
            next_whole = next_record(log.files, at)
            following = log.max_offset if next_whole is None else next_whole[0]
            _LOG.warning(
                "%s: offsets %d to %d have no complete record and are skipped",
                log.files.directory,
                at,
                following,
            )
            at = following


def next_record(files: MappedFileQueue, offset: int) -> tuple[int, int] | None:
    """Return offset and store time of the first whole record behind *offset*, which has none.

    Found by its magic code; it must hold its own physical offset, and match its CRC.
    """
    position = offset - files.start_of(offset) + 1
    for segment in files.files_between(offset, files.end):
        found = _find_record(segment, position)
        if found is not None:
            return found
        position = 0
    return None


def end_after(files: MappedFileQueue, offset: int) -> int:
    """Return the end of a log whose last record ends at *offset*: there, or in the next file.

    A BLANK record at *offset* counts only when the next file was created.
    """
    while (segment := files.file(offset)) is not None:
        with segment.view() as buffer:
            closed = is_blank(buffer, offset - segment.start, segment.size)
        following = segment.start + segment.size
        if not closed or files.file(following) is None:
            break
        offset = following
    return offset


def bytes_behind(files: MappedFileQueue, end: int) -> int:
    """Return how many bytes from the offset *end* on are not zero."""
    return sum(
        int(np.count_nonzero(file.data[max(end - file.start, 0) : file.data_end()]))
        for file in files.files_between(end, files.end)
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
