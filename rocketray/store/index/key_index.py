"""The index files of a store, oldest to newest; the last one is being written.

Invariants
  1. Every key of every record of the log is in a file, in the order of the log, at least once.
  2. A full file whose last store time is before the checkpoint's is whole on disk.
     The newest one is not trusted after a crash: it is rebuilt from the log.
  3. A search keeps its files mapped as long as it lives. So beside a writer that creates and drops
     files, a reader uses the current search, and none of its files is unmapped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.kernels.index import Place, search_chains
from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem, make_directory
from rocketray.store.files.mapped_file import remove_half_made

from .index_file import (
    IndexFile,
    index_file_bytes,
    index_file_name,
    index_file_time_ms,
)

_NAME_DIGITS = 17  # yyyyMMddHHmmssSSS
_LOG = logging.getLogger(__name__)
_AT_ONCE = 64  # physical offsets per kernel call: as many as a query returns


def index_paths(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> list[Path]:
    """Return the index files in *directory*, oldest to newest; none without a directory."""
    return [
        directory / name
        for name in file_system.names(directory)
        if len(name) == _NAME_DIGITS and name.isdecimal()
    ]


class KeyIndex:
    """All index files of one directory. One writer; ``flush`` may run beside it."""

    def __init__(
        self,
        directory: Path,
        hash_slots: int,
        max_entries: int,
        *,
        read_only: bool,
        repair: bool = False,
        clock_ms: Callable[[], int],
        file_system: FileSystem = SYSTEM_FILES,
    ) -> None:
        """Open the files; with *repair* remove the first of another size, and all behind it.

        Raises:
            CorruptRecordError: a file has another size.
        """
        self._directory = directory
        self._hash_slots = hash_slots
        self._max_entries = max_entries
        self._file_system = file_system
        self._clock_ms = clock_ms
        self._forgotten: list[IndexFile] = []
        if not read_only:
            remove_half_made(file_system, directory)
        paths = index_paths(directory, file_system)
        self._names_changed = bool(paths)  # their creator may have died before a flush
        size = index_file_bytes(hash_slots, max_entries)
        whole = takewhile(lambda path: file_system.size(path) == size, paths)
        usable = list(whole) if repair else paths
        self._files = [
            IndexFile(path, hash_slots, max_entries, read_only=read_only, file_system=file_system)
            for path in usable
        ]
        self._search = ChainSearch(self._files)
        for path in paths[len(usable) :]:
            file_system.unlink(path)

    @property
    def files(self) -> list[IndexFile]:
        """All files, oldest first."""
        return list(self._files)

    def entry_count(self) -> int:
        return sum(file.header().next_entry - 1 for file in self._files)

    def reserve(self, count: int) -> None:
        """Ensure that *count* keys can be put; raise :class:`StoreFullError`.

        The first key of the store creates a file. If a file will become full within a batch, the
        next one is created here, before any key is put.
        """
        room = 0
        for file in self._files[self._first_with_room() :]:
            file.reserve(count)
            room += file.room
        while room < count:
            file = self._add_file()
            file.reserve(count)
            room += file.room

    def put(
        self,
        key_hashes: npt.NDArray[np.int32],
        physical_offsets: npt.NDArray[np.int64],
        store_timestamps_ms: npt.NDArray[np.int64],
    ) -> None:
        """Put keys, for which :meth:`reserve` made room, in log order.

        Key i, ``key_hashes`` int32[i], belongs to the record at ``physical_offsets`` int64[i] that
        was stored at ``store_timestamps_ms`` int64[i].
        """
        at, done = self._first_with_room(), 0
        while done < len(key_hashes):
            done += self._files[at].put(key_hashes, physical_offsets, store_timestamps_ms, done)
            if done < len(key_hashes):
                at += 1
                self._files[at].follow(self._files[at - 1].header())

    def newest(self) -> IndexFile | None:
        """Return the file for the next key, if it was created."""
        first = self._first_with_room()
        return self._files[first] if first < len(self._files) else None

    def search(self, key_hash: int) -> Iterator[int]:
        """Yield the physical offsets of entries with *key_hash*, newest first; some may repeat."""
        return self._search.find(key_hash)

    def damaged_file(self, key_hash: int) -> Path | None:
        """Return a file in which a search found the chain of *key_hash* broken, if there is one."""
        slot = key_hash % self._hash_slots
        return next((file.path for file in self._files if slot in file.damaged_slots), None)

    def position(self) -> tuple[int, int]:
        """Return the last indexed record's physical offset, and the number of its indexed keys.

        (0, 0) for an empty index.
        """
        used = [file for file in self._files if file.header().next_entry > 1]
        if not used:
            return 0, 0
        last = used[-1].header().end_physical_offset
        count = 0
        for file in reversed(used):
            here = file.entries_at(last)
            count += here
            if here < file.header().next_entry - 1:
                break
        return last, count

    def keep_trusted(self, timestamp_ms: int) -> None:
        """Remove, after a crash, the files that may not be whole on disk.

        Full files whose last entry was stored before *timestamp_ms* are kept.
        """
        trusted = takewhile(
            lambda file: file.room == 0 and file.header().end_timestamp_ms < timestamp_ms,
            self._files,
        )
        count = len([*trusted])
        gone = self._files[count:]
        del self._files[count:]
        self._search = ChainSearch(self._files)
        for file in gone:
            file.close()
            self._file_system.unlink(file.path)
            self._names_changed = True

    def forget_before(self, log_min_offset: int) -> None:
        """Forget full files whose records are all before *log_min_offset*.

        They stay on disk until :meth:`remove_forgotten`.
        """
        count = 0
        for file in self._files[:-1]:
            if file.room or file.header().end_physical_offset >= log_min_offset:
                break
            count += 1
        self._forgotten += self._files[:count]
        del self._files[:count]
        self._search = ChainSearch(self._files)

    def remove_forgotten(self) -> None:
        """Remove the forgotten files from disk; may run beside the writer."""
        while self._forgotten:
            file = self._forgotten.pop()
            file.close()
            self._file_system.unlink(file.path)
            self._names_changed = True

    def flush(self) -> None:
        """Sync all keys to disk."""
        for file in list(self._files):
            file.flush()
        self._sync_names()

    def close(self) -> None:
        self._search = ChainSearch(())
        for file in (*self._files, *self._forgotten):
            file.close()
        self._files.clear()
        self._forgotten.clear()

    def _first_with_room(self) -> int:
        first = len(self._files)
        # From the end: several files with room follow each other where a batch needs more than one.
        while first and self._files[first - 1].room:
            first -= 1
        return first

    def _sync_names(self) -> None:
        if self._names_changed:
            self._names_changed = False  # set before, for names that are added meanwhile
            try:
                self._file_system.sync(self._directory)
            except BaseException:
                self._names_changed = True
                raise

    def _add_file(self) -> IndexFile:
        """Add a file, named by the clock, or with the next free name after the newest one's."""
        make_directory(self._file_system, self._directory)
        self._sync_names()  # no later file without the previous ones
        now_ms = self._clock_ms()
        newest = self._files[-1].path.name if self._files else ""
        if newest >= index_file_name(now_ms):  # the clock went back
            now_ms = max(now_ms, index_file_time_ms(newest))
        while (name := index_file_name(now_ms)) <= newest:
            now_ms += 1
        file = IndexFile.create(
            self._directory / name, self._hash_slots, self._max_entries, self._file_system
        )
        self._files.append(file)
        self._search = ChainSearch(self._files)
        self._names_changed = True
        return file


class ChainSearch:
    """Searches of a fixed set of files, for any number of threads."""

    def __init__(self, files: Sequence[IndexFile]) -> None:
        """Search *files*, which are open, of one size, and ordered from the oldest."""
        self._files = tuple(files)
        self._memory = tuple(file.data for file in files)  # keeps it mapped
        self._addresses = np.array([data.ctypes.data for data in self._memory], np.int64)

    def find(self, key_hash: int) -> Iterator[int]:
        """Yield the physical offsets of all entries with *key_hash*, newest first.

        A chain that leads out of its file, not backwards, or to another slot's entry is followed up
        to that place, and the damage is reported to the file.
        """
        if not self._files:
            return
        sizes = self._files[0].hash_slots, self._files[0].max_entries
        place = np.array([len(self._files) - 1, 0, 0, 0], np.int64)
        out = np.empty(_AT_ONCE, np.int64)
        file = place[Place.FILE]
        while file >= 0:
            count = search_chains(self._addresses, *sizes, key_hash, place, out)
            yield from out[:count].tolist()
            file, after, is_astray, astray_to = place.tolist()
            if is_astray:
                self._files[file].report_damage(key_hash % sizes[0], after, astray_to)
                place[:] = file - 1, 0, 0, 0
                file -= 1
