"""The lock of a data directory: one process runs a node on it, and the file has its process id.

The lock is on DATA/node.lock; the kernel releases it however the process ends, also if a fork of it
lives on. The number in the file is for people: it is only shown while the lock is held.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from pathlib import Path

from rocketray.errors import StoreError, StoreLockedError
from rocketray.store.files.process_locks import held_here

from .private_files import DATA_MODE, make_directory, open_to_others
from .state_files import disk_error

_LOG = logging.getLogger(__name__)
# A question for the holder takes the lock for some microseconds, and there may be many: a producer
# asks for each send that is not acknowledged while the node starts again. 0.25 s in all.
_TRY_S = 0.01
_TRIES = 25


def lock_file(data: Path) -> Path:
    """Return the file that is locked, which every data directory has."""
    return data / "node.lock"


def lock_node(data: Path, mode: int = DATA_MODE) -> int:
    """Lock the data directory, and create it with *mode* if it is missing.

    Return the descriptor to close when the node has stopped.

    Raises:
        StoreError: this user cannot write there.
        StoreLockedError: another process runs a node on it.
    """
    try:
        if not make_directory(data, mode) and open_to_others(data) & ~mode:
            _LOG.warning(
                "%s: other users of this machine can read or write messages there (mode %o); to "
                "prevent that: chmod %o %s",
                data,
                stat.S_IMODE(data.stat().st_mode),
                mode,
                data,
            )
        descriptor = os.open(lock_file(data), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(
            f"no node can run on {data}: {error.strerror}: {error.filename}; name a directory that "
            "this user can write to with --data"
        ) from None
    if not _is_locked(descriptor):
        os.close(descriptor)
        raise StoreLockedError(
            f"another process runs a node on {data} ({node_holder(data) or 'pid unknown'}); stop "
            "it, or use another --data"
        )
    try:
        # Else the last digits of a longer number would stay.
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, b"pid %d\n" % os.getpid(), 0)
    except OSError as error:
        os.close(descriptor)
        raise disk_error(data, error) from None
    return held_here(descriptor)  # a fork has the descriptor, too, and would keep the lock


def _is_locked(descriptor: int) -> bool:
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if left:
                time.sleep(_TRY_S)
        else:
            return True
    return False


def node_holder(data: Path) -> str | None:
    """Return ``pid 17`` if that process runs a node on the directory; None if there is none."""
    try:
        descriptor = os.open(lock_file(data), os.O_RDONLY)
    except OSError:
        return None
    try:
        # Shared, or two that ask at the same moment would take each other for the node.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "pid unknown"
    finally:
        os.close(descriptor)
    return None
