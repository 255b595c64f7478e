"""The file system of a store; system calls for it are made here, in file_maps.py and uncached.py.

It is a parameter, as the store's clock is, so that a test can override all methods, and control the
data that was not synced yet.

Invariants
  1. New content is durable when its file is synced, a new name when its directory is.
  2. The file system has allocated all blocks of an :meth:`OpenFile.allocate` before it returns:
     behind an mmap a full disk is a SIGBUS, not an error.
  3. A sync that fails is told once. Linux takes the pages that it could not write for written from
     then on, also for the next process: a later sync writes only what was stored since.
Every method raises the system's ``OSError``, and :class:`StoreError` for a directory in a file's
place, and when no more files may be open.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.errors import StoreError

from .file_maps import address_of, map_file, sync_map
from .process_locks import held_here
from .uncached import read_uncached

_ZEROS = bytes(1 << 20)  # written a MiB at a time where the system cannot allocate
_TOO_MANY_ERRORS = (errno.EMFILE, errno.ENFILE)  # of this process, of the system
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PARENTS = 3  # the topic's, that of all shards, and the one that has the name of the latter
_PARTS_MAX = 10_000  # parts of data in a file; beyond, its size counts as the end
_BLOCK_BYTES = 512  # in st_blocks, whatever the file system's own are
_NO_FILE = "{} is a directory, and should be a file of the store; restore it from a copy"


def replace_file(
    file_system: FileSystem, path: Path, content: bytes, *, is_durable: bool = True
) -> None:
    """Replace the content of *path*; after a kill it has the old or the new.

    If *is_durable*, the new one is on disk on return, and a power failure too leaves one of both.
    """
    half_made = path.with_name(path.name + ".tmp")
    file_system.write(half_made, content)
    if is_durable:
        file_system.sync(half_made)
    file_system.rename(half_made, path)
    if is_durable:
        file_system.sync(path.parent)


class FileSystem:
    """The operating system's files and directories by their paths: thin calls of ``os``."""

    def boot(self) -> int:
        """Return a number from 1 to 2**63 - 1 that is the system's own until it starts again.

        Data that was written since and not synced can still be read. 0 where it is not known.
        """
        return _boot_number()

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        """Return whether *path* is a directory; False if it does not exist."""
        return path.is_dir()

    def names(self, directory: Path) -> list[str]:
        """Return the names in *directory*, ascending; none if it is not a directory."""
        return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []

    def size(self, path: Path) -> int:
        """Return the number of bytes of a file, written or not."""
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):  # whose size differs from file system to file system
            raise StoreError(_NO_FILE.format(path))
        return found.st_size

    def read(self, path: Path, limit: int) -> bytes:
        """Return the first *limit* bytes of a file, or all of it if it is shorter."""
        descriptor = _open(path, os.O_RDONLY)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(limit)

    def read_uncached(self, path: Path, start: int, size: int) -> npt.NDArray[np.uint8]:
        """Return *size* bytes of a file from *start*, as the disk has them (uncached.py)."""
        return read_uncached(path, start, size)

    def write(self, path: Path, content: bytes) -> None:
        """Replace a file's content, create it if needed, and keep its allocated blocks."""
        descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            done = 0
            while done < len(content):
                done += os.pwrite(descriptor, content[done:], done)
            os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)

    def create(self, path: Path, size: int, allocated_size: int) -> None:
        """Create or replace a file of *size* zeros, with blocks for the first of them."""
        descriptor = _open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            if allocated_size:
                _allocate(descriptor, 0, allocated_size)
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    def open(self, path: Path, *, read_only: bool) -> OpenFile:
        """Open a file, which must exist, for mapping."""
        return OpenFile(path, read_only=read_only)

    def lock(self, path: Path, content: bytes) -> FileLock:
        """Lock a file, created with *content* if needed; raise ``BlockingIOError`` if locked."""
        return FileLock(path, content)

    def rename(self, path: Path, new_path: Path) -> None:
        """Rename a file within its directory; a file of the new name is replaced."""
        try:
            path.rename(new_path)
        except IsADirectoryError:
            raise StoreError(_NO_FILE.format(new_path)) from None

    def unlink(self, path: Path) -> None:
        """Remove a file, if it exists; for good when its directory is synced."""
        try:
            path.unlink(missing_ok=True)
        except IsADirectoryError:
            raise StoreError(_NO_FILE.format(path)) from None

    def make_directory(self, path: Path) -> None:
        """Create a directory, if it does not exist, in one that does."""
        path.mkdir(exist_ok=True)

    def sync(self, path: Path) -> None:
        """Sync a file's content, or a directory's names, to disk."""
        with few_enough_files(path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class OpenFile:
    """A file that is open for mapping. :meth:`sync` may run in another thread.

    A mapped file holds no descriptor (file_maps.py). Calls that need one open the file again, by
    its path; none of them reports that data could not be written.
    """

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self._path = path
        self._read_only = read_only
        self._descriptor = _open(path, os.O_RDONLY if read_only else os.O_RDWR)
        self._address = 0
        found = os.fstat(self._descriptor)
        self.size = found.st_size
        """The number of bytes when the file was opened."""
        self.allocated = found.st_blocks * _BLOCK_BYTES
        """The number of bytes that had blocks then."""

    def map(self) -> mmap.mmap:
        """Map the whole file, once; raise ``ValueError`` for an empty file."""
        mapped = map_file(self._path, self._descriptor, self.size, read_only=self._read_only)
        self._address = address_of(mapped)
        self._close_descriptor()
        return mapped

    def allocate(self, start: int, size: int) -> None:
        """Allocate blocks for *size* bytes from *start*; existing content stays."""
        with self._opened() as descriptor:
            _allocate(descriptor, start, size)

    def data_end(self) -> int:
        """Return an offset from which on all bytes are zero, because they have no data.

        A file system that does not know returns the size.
        """
        end = 0
        with self._opened() as descriptor:
            for _ in range(_PARTS_MAX):
                try:
                    start = os.lseek(descriptor, end, os.SEEK_DATA)
                    end = os.lseek(descriptor, start, os.SEEK_HOLE)
                except OSError as error:
                    # ENXIO: there is no data from *end* on. Any other error: the file system does
                    # not know.
                    return end if error.errno == errno.ENXIO else self.size
        return self.size

    def cut(self, size: int) -> None:
        """Cut the file to its first *size* bytes; no map may reach beyond them."""
        with self._opened() as descriptor:
            os.ftruncate(descriptor, size)

    def rewrite(self, content: npt.NDArray[np.uint8], start: int, end: int) -> None:
        """Have the next :meth:`sync` write the bytes from *start* to *end* of a map's *content*.

        After a failed sync the system takes the pages that it could not write for written. So a
        byte of each is stored again.
        """
        pages = content[start - start % mmap.PAGESIZE : end : mmap.PAGESIZE]
        # The same values: readers that map the file see no change, and the system takes the pages
        # for changed.
        np.bitwise_or(pages, 0, out=pages)

    def sync(self) -> None:
        """Sync the content to disk; the GIL is released meanwhile."""
        if self._address:
            sync_map(self._path, self._address, self.size)
        else:
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file, which is not synced any more; maps stay valid."""
        self._address = 0
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Give the file's descriptor, opened for the block if it is mapped and so has none."""
        if self._descriptor >= 0:
            yield self._descriptor
            return
        descriptor = _open(self._path, os.O_RDWR)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class FileLock:
    """A lock that is held until :meth:`release`, or until the process ends; a fork has none.

    Two locks, of which one is ours and one is Java's.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        self._descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            # flock excludes other holders in this process, too, and lockf those that RocketMQ's
            # FileChannel.lock excludes, which locks the first byte.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            held_here(self._descriptor)
            if not os.fstat(self._descriptor).st_size:
                os.pwrite(self._descriptor, content, 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        """Release the lock, which the closing of its descriptor does."""
        os.close(self._descriptor)


def _open(path: Path, flags: int) -> int:
    """Return a descriptor of a file; refuse a directory, which the system opens for reading."""
    try:
        with few_enough_files(path):
            # Commands of other users may read, as far as the umask lets them; the node's alone
            # writes.
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    except IsADirectoryError:
        raise StoreError(_NO_FILE.format(path)) from None
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(_NO_FILE.format(path))
    return descriptor


@contextmanager
def few_enough_files(path: Path) -> Iterator[None]:
    """Raise :class:`StoreError` when the system opens no more files for this process."""
    try:
        yield
    except OSError as error:
        if error.errno not in _TOO_MANY_ERRORS:
            raise
        raise StoreError(
            f"{path} cannot be opened ({error.strerror}): raise the limit of open files of this "
            "process (ulimit -n), or delete topics, then try again"
        ) from None


def _allocate(descriptor: int, start: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, size)
        return
    end = start + size  # by writing; there it is called only for new ends of files
    position = max(start, os.fstat(descriptor).st_size)
    while position < end:
        position += os.pwrite(descriptor, _ZEROS[: end - position], position)


@cache
def _boot_number() -> int:
    try:
        # 63 bits, because the checkpoint keeps it as an i64; 0 stands for unknown.
        return (uuid.UUID(_BOOT_ID.read_text().strip()).int & (1 << 63) - 1) or 1
    except (OSError, ValueError):
        return 0


SYSTEM_FILES = FileSystem()


def make_directory(file_system: FileSystem, directory: Path) -> None:
    """Create *directory* and its missing parents; their names are durable on return."""
    missing: list[Path] = []
    while not file_system.exists(directory):
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        file_system.make_directory(path)
        file_system.sync(path.parent)


def sync_names(file_system: FileSystem, directory: Path, *, only_new: bool = False) -> None:
    """Make the names of *directory*, and of all directories below it, durable.

    The process that made them may have died before it did. The names of the two directories above
    it are synced as well: a shard's topic, and the place of all shards.

    If *only_new*, an earlier call was complete. Then there are new names in *directory* itself, and
    where a directory below is empty: its first file comes after its own name is durable.
    """
    if only_new and not _has_empty_below(file_system, directory):
        file_system.sync(directory)
        return
    for parent in directory.parents[:_PARENTS]:
        with suppress(PermissionError):  # we did not make anything there
            file_system.sync(parent)
    _sync_below(file_system, directory)


def _below(file_system: FileSystem, directory: Path) -> list[Path]:
    paths = [directory / name for name in file_system.names(directory)]
    return [path for path in paths if file_system.is_directory(path)]


def _has_empty_below(file_system: FileSystem, directory: Path) -> bool:
    return any(
        not file_system.names(path) or _has_empty_below(file_system, path)
        for path in _below(file_system, directory)
    )


def _sync_below(file_system: FileSystem, directory: Path) -> None:
    file_system.sync(directory)
    for path in _below(file_system, directory):
        _sync_below(file_system, path)
