"""The turn of a gateway: of the two of a disk, one serves its port, and the other one waits.

A process takes seconds to start. So the second one is there already, and serves the same port as
soon as the first one has ended, however that was: the kernel releases the lock of a process that
ends.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from rocketray.runtime.files.paths import fetch_lock_file


class ServingTurn:
    """The lock of a disk's port, in one of the processes that may serve it; for any thread."""

    def __init__(self, data: Path) -> None:
        """Open the lock of the disk *data*; it is not taken yet."""
        path = fetch_lock_file(data)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._is_taken = False

    def take(self) -> bool:
        """Return whether this process has the turn, or could take it now."""
        if not self._is_taken:
            with suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._is_taken = True
        return self._is_taken

    def wait(self) -> None:
        """Return when this process has the turn."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._is_taken = True
