"""What the store asks of a file system, and the one that the system has.

A store is handed its file system as it is handed its clock, so that a test can hold in its own
hands what was not synced yet. Only this file calls the system for the store.

Invariants
  1. A new content is on disk when its file is synced, a new name when its directory is.
  2. The file system has given all blocks of what :meth:`OpenFile.allocate` was asked for before
     it returns: behind an mmap a full disk is a SIGBUS, not an error.
Every method raises what the system does: ``OSError``; and the system's own :class:`StoreError` where
a directory stands in a file's place, or where no more files may be open.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rocketray.errors import StoreError

__all__ = [
    "SYSTEM_FILES",
    "FileLock",
    "FileSystem",
    "OpenFile",
    "few_enough_files",
    "replace_file",
]

_ZEROS = bytes(1 << 20)
_TOO_MANY_ERRORS = (errno.EMFILE, errno.ENFILE)
_NO_FILE = "{} is a directory, and a file of the store's should be there; restore it from a copy"


class OpenFile(Protocol):
    """A file that is open to be mapped. :meth:`sync` may run in another thread."""

    @property
    def size(self) -> int:
        """How many bytes it had when it was opened."""
        ...

    def map(self) -> mmap.mmap:
        """All of it as memory; raises ``ValueError`` for an empty file."""
        ...

    def allocate(self, start: int, size: int) -> None:
        """Have blocks for *size* bytes from *start*; what is there stays."""
        ...

    def sync(self) -> None:
        """Bring the content to disk; the GIL is released while it waits."""
        ...

    def close(self) -> None:
        """Let go of it; maps stay."""
        ...


class FileLock(Protocol):
    """A lock that is held until :meth:`release`, or until the process ends."""

    def release(self) -> None:
        """Give it back."""
        ...


class FileSystem(Protocol):
    """Files and directories by their paths."""

    def exists(self, path: Path) -> bool:
        """Whether there is anything of that name."""
        ...

    def is_directory(self, path: Path) -> bool:
        """Whether it is a directory."""
        ...

    def names(self, directory: Path) -> list[str]:
        """The names in *directory*, ascending; none when it is no directory."""
        ...

    def size(self, path: Path) -> int:
        """The number of bytes of a file."""
        ...

    def read(self, path: Path, limit: int) -> bytes:
        """The first *limit* bytes of a file."""
        ...

    def write(self, path: Path, content: bytes) -> None:
        """Let a file, made if need be, hold *content* and no more, in the blocks that it has."""
        ...

    def create(self, path: Path, size: int, allocated_size: int) -> None:
        """Make a file of *size* zeros, or make it anew, with blocks for the first of them."""
        ...

    def open(self, path: Path, *, read_only: bool) -> OpenFile:
        """Open a file to map it."""
        ...

    def lock(self, path: Path, content: bytes) -> FileLock:
        """Lock a file, made with *content* if need be; ``BlockingIOError`` when another has it."""
        ...

    def rename(self, path: Path, new_path: Path) -> None:
        """Give a file another name in its directory; a file of that name is replaced."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file, if it is there."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make a directory, if it is not there."""
        ...

    def sync(self, path: Path) -> None:
        """Bring a file's content, or a directory's names, to disk."""
        ...


def replace_file(file_system: FileSystem, path: Path, content: bytes) -> None:
    """Let *path* hold *content*, on disk when it returns; after a crash it has the old or the new."""
    half_made = path.with_name(path.name + ".tmp")
    file_system.write(half_made, content)
    file_system.sync(half_made)
    file_system.rename(half_made, path)
    file_system.sync(path.parent)


class _SystemFiles:
    """The system's own: thin calls of ``os``."""

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def read(self, path: Path, limit: int) -> bytes:
        descriptor = _open(path, os.O_RDONLY)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(limit)

    def write(self, path: Path, content: bytes) -> None:
        descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            done = 0
            while done < len(content):
                done += os.pwrite(descriptor, content[done:], done)
            os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)

    def create(self, path: Path, size: int, allocated_size: int) -> None:
        descriptor = _open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            _allocate(descriptor, 0, allocated_size)
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    def open(self, path: Path, *, read_only: bool) -> OpenFile:
        return _SystemFile(path, read_only=read_only)

    def lock(self, path: Path, content: bytes) -> FileLock:
        return _SystemLock(path, content)

    def rename(self, path: Path, new_path: Path) -> None:
        try:
            path.rename(new_path)
        except IsADirectoryError:
            raise StoreError(_NO_FILE.format(new_path)) from None

    def unlink(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except IsADirectoryError:
            raise StoreError(_NO_FILE.format(path)) from None

    def make_directory(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def sync(self, path: Path) -> None:
        with few_enough_files(path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _SystemFile:
    def __init__(self, path: Path, *, read_only: bool) -> None:
        self._path = path
        self._descriptor = _open(path, os.O_RDONLY if read_only else os.O_RDWR)
        self._access = mmap.ACCESS_READ if read_only else mmap.ACCESS_WRITE
        self.size = os.fstat(self._descriptor).st_size

    def map(self) -> mmap.mmap:
        with few_enough_files(self._path):  # a map has a descriptor of its own
            return mmap.mmap(self._descriptor, self.size, access=self._access)

    def allocate(self, start: int, size: int) -> None:
        _allocate(self._descriptor, start, size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)  # mmap.flush would hold the GIL

    def close(self) -> None:
        os.close(self._descriptor)


class _SystemLock:
    """Two locks: ``flock`` also keeps this process out, the other is the one that Java takes."""

    def __init__(self, path: Path, content: bytes) -> None:
        self._descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            if not os.fstat(self._descriptor).st_size:
                os.pwrite(self._descriptor, content, 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        os.close(self._descriptor)


def _open(path: Path, flags: int) -> int:
    """A descriptor of a file; the system itself opens a directory, too, where it is only read."""
    try:
        with few_enough_files(path):
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    except IsADirectoryError:
        raise StoreError(_NO_FILE.format(path)) from None
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(_NO_FILE.format(path))
    return descriptor


@contextmanager
def few_enough_files(path: Path) -> Iterator[None]:
    """Raise :class:`StoreError` where the system opens no more files for this process."""
    try:
        yield
    except OSError as error:
        if error.errno not in _TOO_MANY_ERRORS:
            raise
        raise StoreError(
            f"{path} cannot be opened ({error.strerror}): raise the limit of open files of this "
            "process (ulimit -n), or let it have fewer topics, then try again"
        ) from None


def _allocate(descriptor: int, start: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, size)
        return
    end = start + size  # by writing it; only new ends of files are ever asked for there
    position = max(start, os.fstat(descriptor).st_size)
    while position < end:
        position += os.pwrite(descriptor, _ZEROS[: end - position], position)


SYSTEM_FILES: FileSystem = _SystemFiles()
