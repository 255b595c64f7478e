"""One writer per directory: an exclusive file lock, and a file that marks an unclean end.

Files, as in RocketMQ: ``lock`` is locked while the store is open. ``abort`` holds the process id
while the store is open for writing; a clean close removes it, so finding it means a crash.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rocketray.errors import StoreLockedError

from .file_system import SYSTEM_FILES, FileSystem

__all__ = ["StoreLock", "is_open", "was_clean"]

_LOCK, _ABORT = "lock", "abort"


class StoreLock:
    """A held directory; ``was_clean`` says whether its last writer closed it cleanly."""

    def __init__(self, directory: Path, file_system: FileSystem = SYSTEM_FILES) -> None:
        """Take the lock.

        Raises:
            StoreLockedError: another open store holds it.
        """
        self._file_system = file_system
        self._abort = directory / _ABORT
        try:
            self._lock = file_system.lock(directory / _LOCK, _LOCK.encode())
        except BlockingIOError:
            raise StoreLockedError(
                f"{directory} is open for writing{self._by_whom()}; "
                "stop that one first, or open the directory read-only"
            ) from None
        self.was_clean = was_clean(directory, file_system)

    def mark_open(self) -> None:
        """Mark the store open: from now on an end without :meth:`release` counts as a crash."""
        self._file_system.write(self._abort, str(os.getpid()).encode())
        self._file_system.sync(self._abort.parent)

    def release(self, *, clean: bool) -> None:
        """Release the directory; *clean* means that all of it is on disk and consistent."""
        if clean:
            self._file_system.unlink(self._abort)
            self._file_system.sync(self._abort.parent)
        self._lock.release()

    def _by_whom(self) -> str:
        try:
            text = self._file_system.read(self._abort, 20).decode().strip()
        except (OSError, ValueError):
            return " by another process"
        return f" by process {text}" if text.isdigit() else " by another process"


def was_clean(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> bool:
    """Return whether the last writer of *directory* closed it, or there was none."""
    return not file_system.exists(directory / _ABORT)


def is_open(directory: Path) -> bool:
    """Return whether a process has *directory* open for writing.

    A writer that opens it in just the moment of this call is told that it is locked.
    """
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
