"""Recovery of a consume queue: where its entries end and begin, and entries put again.

Only for the writer, before the queue is used. Files before the last one with an entry are trusted:
they were written and synced first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from rocketray.base.config import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from rocketray.kernels.layout import TAGS_CODE_EXT_MAX
from rocketray.store.files.mapped_file_queue import rewrite_files

from .consume_queue import ENTRY, FILLER_SIZE, ConsumeQueue, QueueEntry, decode_entry, place_of


def put_entries(
    queue: ConsumeQueue,
    physical_offsets: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int32],
    tags_codes: npt.NDArray[np.int64],
    store_timestamps_ms: npt.NDArray[np.int64],
    *,
    bitmaps: npt.NDArray[np.uint8] | None = None,
) -> int:
    """Add entries of records that lie anywhere; return how many were not there already.

    An entry with the same content in a valid ext unit stays. Raises :class:`StoreFullError`.
    """
    queue.reserve(len(sizes), 0 if bitmaps is None else bitmaps.shape[1])
    rows = np.empty(len(sizes), ENTRY)
    rows["physical_offset"], rows["size"] = physical_offsets, sizes
    rows["tags_code"] = tags_codes
    if queue.ext is not None:
        offsets, old_sizes, fields = queue.columns(queue.max_offset, queue.max_offset + len(rows))
        # 0 is no address, so the unit of an entry that was another message's is not kept.
        fields[(offsets != physical_offsets) | (old_sizes != sizes)] = 0
        fields, kept = queue.ext.keep(fields, tags_codes, store_timestamps_ms)
        if queue.adds_units:
            fields[kept:] = queue.ext.append(
                tags_codes[kept:],
                store_timestamps_ms[kept:],
                None if bitmaps is None else bitmaps[kept:],
            )
        rows["tags_code"] = fields
    done = changed = 0
    while done < len(rows):
        file, position = place_of(queue.files, queue.max_offset, len(rows) - done)
        part = rows[done : done + (file.size - position) // ENTRY_BYTES]
        old = file.data[position:].view(ENTRY)[: len(part)]
        changed += int((old != part).sum())
        old[:] = part
        done += len(part)
        queue.max_offset += len(part)
    return changed


def find_end(queue: ConsumeQueue, log_end: int) -> int:
    """Return the end of the valid entries of records below *log_end*: a queue offset.

    For the writer the last entry has its ext unit, and the units end there;
    ``has_lost_units`` says whether entries behind it have none.
    """
    end = _find_entries_end(queue, log_end)
    queue.has_lost_units = False
    if queue.ext is None or queue.files.read_only:
        return end
    for queue_offset, address in _addresses_before(queue, end):
        if queue.ext.end_with(address):
            return end
        end = queue_offset
        queue.has_lost_units = True
    queue.ext.end_at_begin()
    return end


def find_begin(queue: ConsumeQueue, log_min_offset: int) -> None:
    """Begin the queue with the first remaining record of the log."""
    queue.min_offset = min(queue.files.min_offset // ENTRY_BYTES, queue.max_offset)
    queue.forget_before(log_min_offset)


def last_before(queue: ConsumeQueue, end: int) -> QueueEntry | None:
    """Return the entry before the queue offset *end*, if it is one of a record."""
    end = queue.gaps.before(end)
    file = queue.files.file((end - 1) * ENTRY_BYTES) if end > 0 else None
    if file is None:
        return None
    row = file.data.view(ENTRY)[end - 1 - file.start // ENTRY_BYTES].item()
    found = decode_entry(queue.ext, end - 1, row)
    return found if 0 < found.size < FILLER_SIZE else None


def rewrite_from(queue: ConsumeQueue, queue_offset: int) -> None:
    """Have the next flush write all from *queue_offset* on, whatever failed before."""
    for start, stop in queue.gaps.outside(queue_offset, queue.max_offset):
        rewrite_files(queue.files, start * ENTRY_BYTES, stop * ENTRY_BYTES)
    if queue.ext is not None:
        places = _addresses_before(queue, queue.max_offset)
        *_, first = [None, *takewhile(lambda place: place[0] >= queue_offset, places)]
        if first is not None:
            queue.ext.rewrite_from(first[1])


def continue_at(queue: ConsumeQueue, queue_offset: int) -> None:
    """Continue *queue* at *queue_offset*, behind a gap.

    Raises:
        StoreFullError: there is no space for the file of the next entry.
    """
    if queue.files.end < queue_offset * ENTRY_BYTES:
        queue.files.ensure(queue_offset * ENTRY_BYTES, ENTRY_BYTES)
    begin = queue.files.min_offset // ENTRY_BYTES
    queue.gaps = queue.gaps.with_gap(queue.max_offset, queue_offset).from_offset(begin)
    queue.min_offset, queue.max_offset = max(queue.min_offset, begin), queue_offset


def clear_tail(queue: ConsumeQueue) -> int:
    """Zero the entries behind ``max_offset``, after recovery; return their number."""
    if queue.ext is not None:
        queue.ext.cut_tail()
    return -(-queue.files.cut(queue.max_offset * ENTRY_BYTES, keep=False) // ENTRY_BYTES)


def forget_checksums(queue: ConsumeQueue) -> None:
    """Forget the checksums of a queue whose entries and units may be changed."""
    queue.sums.clear()
    if queue.ext is not None:
        queue.ext.sums.clear()


def _find_entries_end(queue: ConsumeQueue, log_end: int) -> int:
    for start in reversed(queue.files.starts):
        rows, first = _file_rows(queue, start), start // ENTRY_BYTES
        offsets = rows["physical_offset"].astype(np.int64)
        good = (rows["size"] > 0) & (offsets >= 0) & (offsets < log_end)
        follows = np.ones(len(rows), np.bool_)
        follows[1:] = (offsets[1:] > offsets[:-1]) | (rows["size"][:-1] == FILLER_SIZE)
        for begin, end in queue.gaps.between(first, first + len(rows)):
            follows[end - first : end - first + 1] = True
            # Zeros in a gap are as they should be, and the first entry behind it follows none.
            good[begin - first : end - first] = follows[begin - first : end - first] = True
        good &= follows
        count = len(good) if good.all() else int(good.argmin())
        # Without the gap at the end, to see whether the file has an entry; the queue ends behind
        # the gap.
        if (end := queue.gaps.before(first + count)) > first:
            return queue.gaps.after(end)
    return queue.gaps.after(queue.files.min_offset // ENTRY_BYTES)


def _addresses_before(queue: ConsumeQueue, end: int) -> Iterator[tuple[int, int]]:
    """Yield queue offset and address of ext addresses in entries before *end*, newest first."""
    for start in reversed(queue.files.starts):
        first = start // ENTRY_BYTES
        fields = _file_rows(queue, start)["tags_code"][: max(end - first, 0)].astype(np.int64)
        for number in np.flatnonzero(fields <= TAGS_CODE_EXT_MAX)[::-1].tolist():
            yield first + number, int(fields[number])


def _file_rows(queue: ConsumeQueue, start: int) -> npt.NDArray[np.void]:
    """Return the entries of a file, without zeros behind them."""
    file = queue.files.file(start)
    assert file is not None
    return file.data.view(ENTRY)[: -(-file.data_end() // ENTRY_BYTES)]
