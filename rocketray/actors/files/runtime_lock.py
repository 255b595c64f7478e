"""Who uses a node's shared memory, and what is left of nodes that died and never came back.

RUNTIME (paths.py) is removed when its node stops, and by the next start on the same data
directory. A node that was killed and is never started again would leave it in memory until the
machine starts anew, so every start looks for such directories of the same user.

Invariants
  1. Each process that a node cannot do without, its own and its filter actor's, holds a shared
     lock on RUNTIME/lock while it lives. The kernel frees it however the process ends.
  2. Nobody needs a directory whose lock is free: a start begins with an empty one. So whoever finds
     it removes it, with the lock held alone. A start removes what was there with a share in the
     lock, so that nobody else is about to, and locks the new one before it is used.
  3. A directory without a lock file is left alone: nothing says whose it is.
  4. RUNTIME is a directory of this user's that nobody else can enter, made by us or found so. What
     another user put there under its name is left alone, and RUNTIME gets another name (paths.py).
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

from rocketray.errors import StoreError

from .paths import free_runtime_directory, runtime_directories, runtime_directory, runtime_link
from .private_files import is_own_directory, make_private_directory, make_private_parents

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
            StoreError: there is no place for it that others cannot enter.
        """
        self._close = weakref.finalize(self, os.close, _share_made(data))

    def close(self) -> None:
        """Give the share back."""
        self._close()


def remove_runtime(data: Path) -> None:
    """Remove what a node on *data* left, whoever may still hold it; raises as RuntimeLock."""
    directory = runtime_directory(data)
    if is_own_directory(directory):
        _remove_shared(directory)
    if runtime_link(data).is_symlink():
        runtime_link(data).unlink(missing_ok=True)


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


def _remove_shared(directory: Path) -> None:
    try:
        descriptor = _share(directory)
    except FileNotFoundError:
        _remove(directory)  # it has no lock file, or is gone
        return
    try:
        _remove(directory)
    finally:
        os.close(descriptor)


def _remove_if_free(directory: Path) -> bool:
    if not is_own_directory(directory):
        return False  # another user made it under a name of ours
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


def _share_made(data: Path) -> int:
    """The descriptor of a share in the lock of RUNTIME, which is made if need be."""
    for _ in range(_TRIES):
        directory = _make(data)
        descriptor = _locked(directory / _LOCK, fcntl.LOCK_SH)
        if descriptor is not None:
            return descriptor
        time.sleep(_TRY_S)
    raise _stays_locked(directory)


def _share(directory: Path) -> int:
    """The descriptor of a share in the lock of *directory*, once nobody holds it alone."""
    for _ in range(_TRIES):
        descriptor = _locked(directory / _LOCK, fcntl.LOCK_SH, create=False)
        if descriptor is not None:
            return descriptor
        time.sleep(_TRY_S)
    raise _stays_locked(directory)


def _stays_locked(directory: Path) -> TimeoutError:
    return TimeoutError(f"{directory / _LOCK} stays locked; see who holds it with: fuser")


def _make(data: Path) -> Path:
    """RUNTIME, made if need be (invariant 4)."""
    directory = runtime_directory(data)
    directory.parent.mkdir(parents=True, exist_ok=True)
    if make_private_directory(directory):
        return directory
    if directory.parent == data:
        raise StoreError(
            f"{directory}: others can enter it, or it is none of this user's, and it is to hold "
            "the node's shared memory; remove it, and start the node again"
        )
    free = free_runtime_directory(data)
    _LOG.warning(
        "%s: others can enter it, or it is none of this user's, so it is left alone; shared memory "
        "is in %s",
        directory,
        free,
    )
    if not make_private_directory(free):
        raise StoreError(f"{free}: it was made by another user a moment ago; start the node again")
    make_private_parents(data)
    link = runtime_link(data)
    temporary = link.with_name(f"{link.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(free)
    temporary.replace(link)
    return free


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
