"""Who uses a node's shared memory, and what is left of nodes that died and never came back.

RUNTIME (layout.py) is removed when its node stops, and by the next start on the same data
directory. A node that was killed and is never started again would leave it in memory until the
machine starts anew, so every start looks for such directories of the same user.

Invariants
  1. Each process that a node cannot do without, its own and its filter actor's, holds a shared
     lock on RUNTIME/lock while it lives. The kernel frees it however the process ends.
  2. Nobody needs a directory whose lock is free: a start begins with an empty one. So whoever finds
     it removes it, with the lock held alone. A start removes what was there with a share in the
     lock, so that nobody else is about to, and locks the new one before it is used.
  3. A directory without a lock file is left alone: nothing says whose it is.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
import uuid
import weakref
from pathlib import Path

from .layout import runtime_directories, runtime_directory

__all__ = ["RuntimeLock", "remove_abandoned", "remove_runtime"]

_LOG = logging.getLogger(__name__)
_LOCK = "lock"
_REMOVED = ".removed"
_TRY_S = 0.01
_TRIES = 100


class RuntimeLock:
    """A share in a data directory's RUNTIME, which is made if need be."""

    def __init__(self, data: Path) -> None:
        """Wait for a moment when somebody is about to remove what was there.

        Raises:
            TimeoutError: that takes too long.
        """
        directory = runtime_directory(data)
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        self._close = weakref.finalize(self, os.close, _share(directory, create=True))

    def close(self) -> None:
        """Give the share back."""
        self._close()


def remove_runtime(data: Path) -> None:
    """Remove what a node on *data* left, whoever may still hold it; raises as RuntimeLock."""
    directory = runtime_directory(data)
    try:
        descriptor = _share(directory, create=False)
    except FileNotFoundError:
        _remove(directory)  # there is none, or it has no lock file
        return
    try:
        _remove(directory)
    finally:
        os.close(descriptor)


def remove_abandoned() -> list[Path]:
    """Remove all RUNTIME directories of this user that nobody uses; which they were."""
    removed = []
    for directory in runtime_directories():
        try:
            if _remove_if_free(directory):
                removed.append(directory)
        except OSError as error:
            _LOG.warning("%s, of a node that is gone, is not removed: %s", directory, error)
    return removed


def _remove_if_free(directory: Path) -> bool:
    if directory.name.endswith(_REMOVED):  # whoever began that was killed, or is at it
        shutil.rmtree(directory, ignore_errors=True)
        return True
    try:
        descriptor = _locked(directory / _LOCK, fcntl.LOCK_EX, create=False)
    except FileNotFoundError:
        return False  # invariant 3, or somebody was quicker
    if descriptor is None:
        return False
    try:
        _remove(directory)
    finally:
        os.close(descriptor)
    return True


def _remove(directory: Path) -> None:
    """Take the directory out of the way in one step, then remove it."""
    doomed = directory.with_name(f"{directory.name}.{uuid.uuid4().hex}{_REMOVED}")
    try:
        directory.rename(doomed)
    except FileNotFoundError:
        return
    shutil.rmtree(doomed, ignore_errors=True)


def _share(directory: Path, *, create: bool) -> int:
    """The descriptor of a share in the lock of *directory*, once nobody holds it alone."""
    for _ in range(_TRIES):
        descriptor = _locked(directory / _LOCK, fcntl.LOCK_SH, create=create)
        if descriptor is not None:
            return descriptor
        time.sleep(_TRY_S)
        if create:
            directory.mkdir(parents=True, mode=0o700, exist_ok=True)
    raise TimeoutError(f"{directory / _LOCK} stays locked; see who holds it with: fuser")


def _locked(path: Path, kind: int, *, create: bool = True) -> int | None:
    """The descriptor of the locked file that is at *path*; None when that cannot be now."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileNotFoundError:
        if create:
            return None  # the directory was removed a moment ago
        raise
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
