"""The lock of a node's shared memory, and the removal of shared memory that dead nodes left.

RUNTIME (paths.py) is removed when its node stops, and by the next start on the same data directory.
A node that was killed and is never started again would leave it in memory until the machine is
rebooted, so every start looks for such directories of the same user.

Invariants
  1. The processes that a node cannot do without, its own and its filter actor's, each hold a shared
     lock on RUNTIME/lock while they live. The kernel releases it however the process ends.
  2. A directory whose lock is free is not in use, since a start begins with an empty one. So a
     process that finds it takes the lock exclusively and removes it. A start removes an existing
     RUNTIME with the lock shared, so that no other process is about to remove it, and locks the new
     one before it is used.
  3. A directory without a lock file is left alone: its owner is not known.
  4. RUNTIME is a directory of this user that no other user can enter, created or found so. A
     directory of another user under its name is left alone, and RUNTIME gets another name
     (paths.py).
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
import uuid
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rocketray.errors import StoreError
from rocketray.store.files.process_locks import held_here

from .paths import free_runtime_directory, runtime_directories, runtime_directory, runtime_link
from .private_files import is_own_directory, make_private_directory, make_private_parents

_LOG = logging.getLogger(__name__)
_LOCK = "lock"
_REMOVED = ".removed"
# One second in all: who has the exclusive lock renames the directory, or lets go, within a moment.
_TRY_S = 0.01
_TRIES = 100


class RuntimeLock:
    """A shared lock on a data directory's RUNTIME, which is created if it is missing."""

    def __init__(self, data: Path) -> None:
        """Take the lock, and wait while another process is about to remove an existing RUNTIME.

        Raises:
            TimeoutError: that takes too long.
            StoreError: there is no place for RUNTIME that other users cannot enter.
        """
        self._close = weakref.finalize(self, os.close, _share(partial(_make, data), create=True))

    def close(self) -> None:
        self._close()


def remove_runtime(data: Path) -> None:
    """Remove the RUNTIME of a node on *data*, even if it is shared; raises as RuntimeLock."""
    directory = runtime_directory(data)
    if is_own_directory(directory):
        _remove_shared(directory)
    if runtime_link(data).is_symlink():
        runtime_link(data).unlink(missing_ok=True)


class RuntimeMark:
    """Which RUNTIME a process uses: each start of a node creates another."""

    def __init__(self, data: Path) -> None:
        """Take the one that there is now, before anything in it is used."""
        self._data = data
        self._used = self._now()

    def is_left_behind(self) -> bool:
        """Return whether a node has created RUNTIME again since: no process reads the old one."""
        now = self._now()
        return now is not None and now != self._used

    def is_current(self) -> bool:
        """Return whether RUNTIME is the one that was taken: that node has not ended."""
        return self._now() == self._used

    def _now(self) -> tuple[int, int] | None:
        """Return the identity of the lock's file, which is never written; None without a node."""
        try:
            found = (runtime_directory(self._data) / _LOCK).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns  # a number may be used again, with another time


def remove_abandoned() -> list[Path]:
    """Remove all RUNTIME directories of this user that are not in use; return them."""
    removed = []
    for directory in runtime_directories():
        try:
            if _remove_if_free(directory):
                removed.append(directory)
        except OSError as error:
            _LOG.warning("%s, of a node that has ended, is not removed: %s", directory, error)
    return removed


def abandoned() -> list[Path]:
    """Return the RUNTIME directories of this user that are not in use; nothing is removed."""
    return [path for path in runtime_directories() if is_own_directory(path) and _is_free(path)]


def _is_free(directory: Path) -> bool:
    if directory.name.endswith(_REMOVED):
        return True
    try:
        descriptor = _locked(directory / _LOCK, fcntl.LOCK_EX, create=False)
    except FileNotFoundError:
        return False  # as below
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def _remove_shared(directory: Path) -> None:
    try:
        descriptor = _share(lambda: directory, create=False)
    except FileNotFoundError:
        _remove(directory)  # it has no lock file, or is gone
        return
    try:
        _remove(directory)
    finally:
        os.close(descriptor)


def _remove_if_free(directory: Path) -> bool:
    if not is_own_directory(directory):
        return False  # another user created it under one of our names
    if directory.name.endswith(_REMOVED):  # the process that began it died, or is still at it
        shutil.rmtree(directory, ignore_errors=True)
        return True
    try:
        descriptor = _locked(directory / _LOCK, fcntl.LOCK_EX, create=False)
    except FileNotFoundError:
        return False  # invariant 3, or another process was quicker
    if descriptor is None:
        return False
    try:
        _remove(directory)
    finally:
        os.close(descriptor)
    return True


def _remove(directory: Path) -> None:
    """Rename the directory, then remove it, so that a start meanwhile never finds half of it."""
    doomed = directory.with_name(f"{directory.name}.{uuid.uuid4().hex}{_REMOVED}")
    try:
        directory.rename(doomed)
    except FileNotFoundError:
        return
    shutil.rmtree(doomed, ignore_errors=True)


def _share(find: Callable[[], Path], *, create: bool) -> int:
    """Return the descriptor of a shared lock on the directory, once no exclusive lock is held."""
    for _ in range(_TRIES):
        directory = find()
        descriptor = _locked(directory / _LOCK, fcntl.LOCK_SH, create=create)
        if descriptor is not None:
            return descriptor
        time.sleep(_TRY_S)
    raise TimeoutError(
        f"{directory / _LOCK} stays locked; find the process that holds it with: fuser"
    )


def _make(data: Path) -> Path:
    """Return RUNTIME, created if it is missing (invariant 4)."""
    directory = runtime_directory(data)
    directory.parent.mkdir(parents=True, exist_ok=True)
    if make_private_directory(directory):
        return directory
    if directory.parent == data:
        raise StoreError(
            f"{directory}: other users can enter it, or it belongs to another user, so it cannot "
            "hold the node's shared memory; remove it, and start the node again"
        )
    free = free_runtime_directory(data)
    _LOG.warning(
        "%s: other users can enter it, or it belongs to another user, so it is not used; shared "
        "memory is in %s",
        directory,
        free,
    )
    if not make_private_directory(free):
        raise StoreError(f"{free}: another user created it a moment ago; start the node again")
    make_private_parents(data)
    link = runtime_link(data)
    temporary = link.with_name(f"{link.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(free)
    # In one step: a program that looks for RUNTIME finds the old link, or the new one.
    temporary.replace(link)
    return free


def _locked(path: Path, kind: int, *, create: bool) -> int | None:
    """Return the descriptor of the locked file at *path*; None if it cannot be locked now."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileNotFoundError:
        if create:
            return None  # the directory was removed just now
        raise
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        # Between open and flock it may have been replaced: the old file would protect nothing.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return held_here(descriptor)
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
