"""One writer per directory: ``lock`` is locked while the store is open, as RocketMQ's is."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rocketray.errors import StoreLockedError

from .file_system import SYSTEM_FILES, FileSystem
from .open_mark import OpenMark, writer_of

_LOCK = "lock"


class StoreLock:
    """A held directory, with its *mark*, which says how its last writer ended."""

    def __init__(self, directory: Path, file_system: FileSystem = SYSTEM_FILES) -> None:
        """Take the lock.

        Raises:
            StoreLockedError: another open store holds it.
        """
        try:
            self._lock = file_system.lock(directory / _LOCK, _LOCK.encode())
        except BlockingIOError:
            writer = writer_of(directory, file_system)
            raise StoreLockedError(
                f"{directory} is open for writing by {writer}; stop that one first, or open the "
                "directory read-only"
            ) from None
        self.mark = OpenMark(directory, file_system)

    def release(self, *, clean: bool) -> None:
        """Release the directory; *clean* means that all of it is on disk and consistent."""
        if clean:
            self.mark.remove()
        self._lock.release()


def is_open(directory: Path) -> bool:
    """Return whether a process has *directory* open for writing.

    A writer that opens it in just the moment of this call is told that it is locked.
    """
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two that ask at once do not take each other for the writer.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
