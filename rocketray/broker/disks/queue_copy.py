"""The copy of a queue's directory from one disk to another, while the queue is used.

The copy is made in rounds. In each, the source tells the CRC-32 of every block, and the target
fetches the blocks that differ from its own. The last round comes after the shard was closed, and
finds what was written since the round before. What an earlier copy left is used.

Invariants
  1. After a round of a closed queue the target has the same files, of the same sizes, with the same
     sum of each block, and they are on its disk.
  2. A block is left out of later rounds only if it cannot change: it lies below the flushed end of
     the CommitLog, or in an index file that is not the last one. A file that was replaced is
     compared as a whole.
  3. A block of zeros is not sent, and stays a hole.
"""

from __future__ import annotations

import os
import shutil
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocketray.broker.topics.topic_files import HANDED_OVER
from rocketray.errors import StoreError
from rocketray.runtime.files.paths import CONTROL_PAGE
from rocketray.runtime.ipc.control_page import ControlPage
from rocketray.store.files.file_system import SYSTEM_FILES, few_enough_files

from .copy_rounds import FileSums, Known, RoundProgress

BLOCK_BYTES = 1024 * 1024
"""A queue with one changed byte has that much sent again; a log file of 64 MiB has 64 sums."""
BLOCKS_AT_ONCE = 8
"""How many blocks are fetched by one call at most: 8 MiB, which both sides hold in memory."""
_FILES_MAX = 1_000_000  # 64 TB of log; the list comes from another machine
_LEFT_OUT = {"lock", HANDED_OVER}
Fetch = Callable[[Sequence[tuple[str, list[int]]]], Iterator[bytes]]
"""Takes names with the numbers of blocks, and yields the content of each."""
_ZEROS = bytes(BLOCK_BYTES)
_NO_DATA = -1  # no CRC-32 is negative


def sums_of(directory: Path, known: Known) -> dict[str, FileSums]:
    """Return the sums of all files of a queue, but for the blocks that are *known*.

    A file that is removed meanwhile is left out.

    Raises:
        StoreError: there is no such directory. OSError: a file cannot be read.
    """
    flushed = _flushed(directory)
    files: dict[str, FileSums] = {}
    names = _files(directory)
    last_index = max((name for name in names if name.startswith("index/")), default="")
    for name in names:
        try:
            with _opened(directory / name, os.O_RDONLY) as descriptor:
                status = os.fstat(descriptor)
                stable = _stable_bytes(name, status.st_size, flushed, last_index) // BLOCK_BYTES
                # A file that is replaced gets another inode, and is compared as a whole.
                incarnation, have = known.get(name, (0, 0))
                first = have if incarnation == status.st_ino else 0
                sums = tuple(_sums(descriptor, status.st_size, first))
        except FileNotFoundError:
            continue
        files[name] = FileSums(status.st_size, status.st_ino, stable, first, sums)
    return files


def read_blocks(directory: Path, name: str, blocks: Sequence[int]) -> bytes:
    """Return blocks of a file, one behind the other; shorter if the file has ended.

    Raises:
        StoreError: it is no file of the queue, or too many blocks are asked for. OSError: it cannot
            be read.
    """
    check_name(name)
    if len(blocks) > BLOCKS_AT_ONCE:
        raise StoreError(f"{len(blocks)} blocks are asked for at once; at most {BLOCKS_AT_ONCE}")
    with _opened(directory / name, os.O_RDONLY) as descriptor:
        return b"".join(os.pread(descriptor, BLOCK_BYTES, at * BLOCK_BYTES) for at in blocks)


class QueueCopy:
    """The target of one copy; for one thread, but for ``progress``, which any may read."""

    def __init__(self, directory: Path) -> None:
        """Take the *directory* of the copy, which may have what an earlier one left."""
        self.directory = directory
        self.progress = RoundProgress()
        directory.mkdir(parents=True, exist_ok=True)
        self._incarnations: dict[str, int] = {}
        self._sums: dict[str, list[int]] = {}
        self._done: dict[str, int] = {}
        for name in _files(directory):
            with _opened(directory / name, os.O_RDONLY) as descriptor:
                self._sums[name] = list(_sums(descriptor, os.fstat(descriptor).st_size, 0))

    @property
    def known(self) -> Known:
        """What the source need not look at any more."""
        return {name: (self._incarnations[name], done) for name, done in self._done.items()}

    def take_files(self, files: Mapping[str, FileSums], fetch: Fetch) -> int:
        """Make the copy like *files*; return how many bytes were fetched.

        While the queue is used, a block may have changed since its sum was made; the next round
        finds that.

        Raises:
            StoreError: *files* names a file that no queue has. OSError: it cannot be written.
        """
        if len(files) > _FILES_MAX:
            raise StoreError(f"the queue has {len(files)} files; at most {_FILES_MAX}")
        for name in files:
            check_name(name)
        for name in self._sums.keys() - files.keys():
            (self.directory / name).unlink(missing_ok=True)
            del self._sums[name]
            self._done.pop(name, None)
        wanted: list[tuple[str, list[int]]] = []
        for name, file in files.items():
            wanted += self._prepare(name, file)
        total = sum(_bytes_of(files[name].size, blocks) for name, blocks in wanted)
        count = 0
        try:
            for (name, blocks), content in zip(wanted, fetch(wanted), strict=True):
                self._write(name, blocks, content)
                count += len(content)
                self.progress = RoundProgress(count, total)
        finally:
            self.progress = RoundProgress()
        for name, file in files.items():
            self._note(name, file)
        return count

    def differences(self, found: Mapping[str, FileSums]) -> list[str]:
        """Return the files whose last round was not like *found*."""
        return sorted(
            name
            for name, file in found.items()
            if tuple(self._sums[name][file.first :]) != file.sums
        )

    def sync(self) -> None:
        """Bring all files and their names to disk: the queue may begin here when this returns."""
        for path in [self.directory, *self.directory.rglob("*")]:
            SYSTEM_FILES.sync(path)

    def remove(self) -> None:
        """Remove the copy: its queue stays where it is."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _prepare(self, name: str, file: FileSums) -> list[tuple[str, list[int]]]:
        """Give a file its size, and its zeros; return the blocks to fetch."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        count = -(-file.size // BLOCK_BYTES)
        before = self._sums.get(name, [])
        mine = [*before[:count], *[_NO_DATA] * (count - len(before))]
        differing = []
        with _opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
            old_size = os.fstat(descriptor).st_size
            os.ftruncate(descriptor, file.size)
            if old_size != file.size and before:  # the block at the end has other bytes now
                edge = min(old_size, file.size) // BLOCK_BYTES
                mine[edge:] = _sums(descriptor, file.size, edge)
            for number, theirs in enumerate(file.sums, file.first):
                if mine[number] == theirs:
                    continue
                if theirs == _NO_DATA:
                    start = number * BLOCK_BYTES
                    end = min(start + BLOCK_BYTES, file.size)
                    _pwrite(descriptor, memoryview(_ZEROS)[: end - start], start)
                    mine[number] = _NO_DATA
                else:
                    differing.append(number)
        self._sums[name] = mine
        parts = range(0, len(differing), BLOCKS_AT_ONCE)
        return [(name, differing[at : at + BLOCKS_AT_ONCE]) for at in parts]

    def _write(self, name: str, blocks: Sequence[int], content: bytes) -> None:
        view = memoryview(content)
        with _opened(self.directory / name, os.O_RDWR) as descriptor:
            size = os.fstat(descriptor).st_size
            for place, number in enumerate(blocks):
                block = view[place * BLOCK_BYTES : (place + 1) * BLOCK_BYTES]
                start = number * BLOCK_BYTES
                if start + len(block) > size:
                    block = block[: size - start]
                _pwrite(descriptor, block, start)
                self._sums[name][number] = _sum(block)

    def _note(self, name: str, file: FileSums) -> None:
        """Note the blocks that are the same, and stay so."""
        self._incarnations[name] = file.incarnation
        # A front part, because one number tells the source what it need not look at.
        done = file.first
        for mine, theirs in zip(self._sums[name][done : file.stable], file.sums, strict=False):
            if mine != theirs:
                break
            done += 1
        self._done[name] = done


def check_name(name: str) -> None:
    """Raise :class:`StoreError` unless *name* is a relative path that stays in its directory."""
    parts = name.split("/")
    if (
        not name
        or len(name) > 1000
        or "\0" in name
        or any(part in ("", ".", "..") for part in parts)
    ):
        raise StoreError(f"{name!r:.200} is no file of a queue")


def _files(directory: Path) -> list[str]:
    """Return the regular files below a directory, but for the lock."""
    if not directory.is_dir():
        raise StoreError(f"{directory} is missing, so the queue cannot be copied from there")
    found = []
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        try:
            is_file = stat.S_ISREG(path.lstat().st_mode)
        except FileNotFoundError:
            continue
        if is_file and name not in _LEFT_OUT:
            found.append(name)
    return sorted(found)


def _flushed(directory: Path) -> int:
    try:
        return ControlPage(directory / CONTROL_PAGE).flushed()
    except FileNotFoundError:
        return 0


def _bytes_of(size: int, blocks: Sequence[int]) -> int:
    """Return how many bytes blocks of a file of *size* bytes have."""
    return sum(min(BLOCK_BYTES, size - at * BLOCK_BYTES) for at in blocks)


def _stable_bytes(name: str, size: int, flushed: int, last_index: str) -> int:
    """Return how many bytes at the front of a file never change, unless it is replaced."""
    folder, _, file = name.rpartition("/")
    if folder == "commitlog" and file.isdecimal():
        return max(0, min(size, flushed - int(file)))
    return size if folder == "index" and name < last_index else 0


def _sums(descriptor: int, size: int, first: int) -> Iterator[int]:
    """Yield the sums of the blocks from *first* on; holes are not read."""
    data_from, start = -1, first * BLOCK_BYTES
    while start < size:
        end = min(start + BLOCK_BYTES, size)
        if data_from < start:
            data_from = _next_data(descriptor, start, size)
        if data_from >= end:
            yield _NO_DATA
        else:
            yield _sum(memoryview(os.pread(descriptor, end - start, start)))
        start += BLOCK_BYTES


def _next_data(descriptor: int, start: int, size: int) -> int:
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA)
    except OSError:  # nothing but a hole up to the end
        return size


def _sum(block: memoryview) -> int:
    return _NO_DATA if block == _ZEROS[: len(block)] else zlib.crc32(block)


def _pwrite(descriptor: int, block: memoryview, start: int) -> None:
    while block:
        written = os.pwrite(descriptor, block, start)
        block, start = block[written:], start + written


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    with few_enough_files(path):
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
