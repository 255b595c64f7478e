"""One IndexFile: from the hash of a key to the physical offsets of the records with that key.

- Header, 40 bytes: i64 begin and end store time, i64 begin and end physical offset, i32 slots used,
  i32 number of the next entry (they count from 1).
- Slots, i32 each: the newest entry of a hash modulo the slot count, 0 for none.
- Entries, 20 bytes each: i32 key hash, i64 physical offset, i32 seconds after begin, i32 the entry
  before it in its slot. Entry 0 is never used.
- The file name is the local time of its creation, yyyyMMddHHmmssSSS.

Source: RocketMQ 5.3.3, ``IndexFile``.

Invariants
  1. Entries are put in the order of the log; every entry's predecessor has a smaller number.
  2. The file is sparse; blocks are allocated before a part of it is written (mapped_file.py).
"""

from __future__ import annotations

import logging
import struct
import time
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.kernels.index import put_keys
from rocketray.kernels.layout import INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.mapped_file import MappedFile, create_file

_LOG = logging.getLogger(__name__)
_HEADER = struct.Struct(">qqqqii")
INDEX_ENTRY = np.dtype(
    [("hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
_AHEAD_MIN_BYTES, _AHEAD_MAX_BYTES = 1 << 16, 1 << 20  # blocks: as many again


class IndexHeader(NamedTuple):
    """The first 40 bytes. ``next_entry`` is 1 in an empty file."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_physical_offset: int
    end_physical_offset: int
    slots_used: int
    next_entry: int


def index_file_bytes(hash_slots: int, max_entries: int) -> int:
    """Return the size of a file with so many slots and places for entries."""
    return INDEX_HEADER_BYTES + hash_slots * INDEX_SLOT_BYTES + max_entries * INDEX_ENTRY_BYTES


def index_file_name(now_ms: int) -> str:
    """Return the name of a file created at *now_ms*: local time to the millisecond."""
    return f"{time.strftime('%Y%m%d%H%M%S', time.localtime(now_ms // 1000))}{now_ms % 1000:03d}"


def index_file_time_ms(name: str) -> int:
    """Return when a file of that *name* was created; 0 for digits that are not a time."""
    try:
        return int(time.mktime(time.strptime(name[:14], "%Y%m%d%H%M%S"))) * 1000 + int(name[14:])
    except (ValueError, OverflowError):
        return 0


class IndexFile:
    """An open index file. One writer; :meth:`flush` may run beside it in another thread."""

    def __init__(
        self,
        path: Path,
        hash_slots: int,
        max_entries: int,
        *,
        read_only: bool,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Map *path*; raise :class:`CorruptRecordError` when its size differs."""
        size = index_file_bytes(hash_slots, max_entries)
        self.path = path
        self._file = MappedFile(path, 0, size, read_only=read_only, file_system=file_system)
        self.hash_slots = hash_slots
        self.max_entries = max_entries
        self._is_dirty = False
        self.room = max(max_entries - self.header().next_entry, 0)
        """The number of entries that still fit, for the writer."""
        self.damaged_slots: set[int] = set()
        """The slots in whose chains a search (key_index.py) found damage."""

    @classmethod
    def create(
        cls,
        path: Path,
        hash_slots: int,
        max_entries: int,
        file_system: FileSystem = SYSTEM_FILES,
    ) -> IndexFile:
        """Create an empty file.

        Raises:
            StoreFullError: there is no space for its header and slots.
        """
        slots_end = INDEX_HEADER_BYTES + hash_slots * INDEX_SLOT_BYTES
        create_file(file_system, path, index_file_bytes(hash_slots, max_entries), slots_end)
        made = cls(path, hash_slots, max_entries, read_only=False, file_system=file_system)
        made._file.write(0, _HEADER.pack(0, 0, 0, 0, 0, 1))
        return made

    def table(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.void]]:
        """Return the slots, and the entries from the first one, as views of the file."""
        slots_end = INDEX_HEADER_BYTES + self.hash_slots * INDEX_SLOT_BYTES
        slots = self._file.data[INDEX_HEADER_BYTES:slots_end].view(">i4")
        entries = self._file.data[
            self.entry_position(1) : self.entry_position(self.header().next_entry)
        ]
        return slots, entries.view(INDEX_ENTRY)

    def entry_position(self, number: int) -> int:
        """Return the position of the entry *number* in the file; entries count from 1."""
        return INDEX_HEADER_BYTES + self.hash_slots * INDEX_SLOT_BYTES + number * INDEX_ENTRY_BYTES

    def slot_position(self, slot: int) -> int:
        """Return the position of a slot in the file; slots count from 0."""
        return INDEX_HEADER_BYTES + slot * INDEX_SLOT_BYTES

    def header(self) -> IndexHeader:
        """Return the header; ``next_entry`` is kept within the file, whatever its bytes."""
        header = IndexHeader(*_HEADER.unpack(self._file.read(0, INDEX_HEADER_BYTES)))
        next_entry = min(max(header.next_entry, 1), self.max_entries)
        return header._replace(next_entry=next_entry)

    def follow(self, previous: IndexHeader) -> None:
        """Begin, still empty, at the end of the full file with the header *previous*.

        As in RocketMQ: the seconds of the first entry are counted from the end of the previous
        file.
        """
        time_ms, offset = previous.end_timestamp_ms, previous.end_physical_offset
        self._file.write(0, _HEADER.pack(time_ms, time_ms, offset, offset, 0, 1))

    def reserve(self, count: int) -> None:
        """Allocate blocks for *count* more entries, as far as they fit; raise StoreFullError."""
        last = self.max_entries - max(self.room - count, 0)
        end = self.entry_position(last)
        ahead = min(max(end - self.entry_position(0), _AHEAD_MIN_BYTES), _AHEAD_MAX_BYTES)
        self._file.reserve(end, ahead)

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The whole file, for kernels."""
        return self._file.data

    @property
    def reserved(self) -> int:
        """The number of further entries that have blocks."""
        given = (self._file.reserved - self.entry_position(0)) // INDEX_ENTRY_BYTES
        return max(min(given, self.max_entries) - (self.max_entries - self.room), 0)

    def put(
        self,
        key_hashes: npt.NDArray[np.int32],
        physical_offsets: npt.NDArray[np.int64],
        store_timestamps_ms: npt.NDArray[np.int64],
        first: int,
    ) -> int:
        """Put the keys from *first* on; return how many fitted. Call :meth:`reserve` first."""
        count = put_keys(
            self._file.data,
            self.hash_slots,
            self.max_entries,
            key_hashes,
            physical_offsets,
            store_timestamps_ms,
            first,
        )
        self.advance(count)
        return count

    def advance(self, count: int) -> None:
        """Account for *count* keys that a kernel put."""
        self.room -= count
        self._is_dirty = True  # set after writing: a concurrent flush is not the last

    def report_damage(self, slot: int, entry: int, named: int) -> None:
        """Record, and log once, that an *entry* of the chain of *slot*, or the slot, is damaged.

        *named* is the predecessor that it names; *entry* is 0 for the slot.
        """
        if slot in self.damaged_slots:
            return
        self.damaged_slots.add(slot)
        _LOG.warning(
            "%s: broken chain of slot %d, from %s to %d; keys may be missing",
            self.path,
            slot,
            f"entry {entry}" if entry else "the slot",
            named,
        )

    def entries_at(self, physical_offset: int) -> int:
        """Return how many of the last entries belong to the record at *physical_offset*."""
        offsets = self.table()[1]["physical_offset"][::-1]
        return sum(1 for _ in takewhile(lambda offset: offset == physical_offset, offsets))

    def flush(self) -> None:
        """Sync all entries to disk."""
        if self._is_dirty:
            self._is_dirty = False
            self._file.flush()

    def close(self) -> None:
        self._file.close()
