"""One writer a directory: an exclusive file lock, and a file that tells of an unclean end.

Files, as RocketMQ's: ``lock`` is locked while the store is open; ``abort`` holds the process id
while the store is open for writing and is removed by a clean close, so finding it means a crash.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rocketray.errors import StoreLockedError

from .directories import sync_directory

__all__ = ["StoreLock", "was_clean"]

_LOCK, _ABORT = "lock", "abort"


class StoreLock:
    """Holds a directory; ``was_clean`` says how its last writer ended."""

    def __init__(self, directory: Path) -> None:
        """Take the lock.

        Raises:
            StoreLockedError: another open store has it.
        """
        self._abort = directory / _ABORT
        self._descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise StoreLockedError(
                f"{directory} is open for writing{self._by_whom()}; "
                "stop that one first, or open the directory read-only"
            ) from None
        if os.fstat(self._descriptor).st_size == 0:
            os.pwrite(self._descriptor, _LOCK.encode(), 0)
        self.was_clean = was_clean(directory)

    def mark_open(self) -> None:
        """From now on an end without :meth:`release` counts as a crash."""
        self._abort.write_text(str(os.getpid()))
        sync_directory(self._abort.parent)

    def release(self, *, clean: bool) -> None:
        """Give the directory back; *clean* says that all of it is on disk and consistent."""
        if clean:
            self._abort.unlink(missing_ok=True)
            sync_directory(self._abort.parent)
        os.close(self._descriptor)

    def _by_whom(self) -> str:
        try:
            text = self._abort.read_text()[:20].strip()
        except (OSError, ValueError):
            return " by another process"
        return f" by process {text}" if text.isdigit() else " by another process"


def was_clean(directory: Path) -> bool:
    """Whether the last writer of *directory* closed it, or there was none."""
    return not (directory / _ABORT).exists()
