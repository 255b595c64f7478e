"""Directories and secrets that no other user may read, enter or exchange.

In a directory that every user can write to, such as ``/tmp`` and ``/dev/shm``, any user may have
created a file under a name that can be guessed. So a directory is accepted only if this call
created it, or if it is not a link, belongs to this user, and no other user may enter it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

DATA_MODE = 0o700  # of data directories, unless the operator gives another one
_DIRECTORY_MODE, _SECRET_MODE = 0o700, 0o600


def make_private_directory(path: Path) -> bool:
    """Create *path* as a directory of this user alone; False if something else has that name.

    A directory that exists and is private already is accepted as it is.
    """
    # Create first, check afterwards: after a check, another user could still exchange it.
    with suppress(FileExistsError):
        path.mkdir(mode=_DIRECTORY_MODE)
    mode = stat.S_IMODE(path.lstat().st_mode)
    return is_own_directory(path) and mode & ~_DIRECTORY_MODE == 0


def make_directory(path: Path, mode: int) -> bool:
    """Create *path* and its missing parents with *mode*, whatever the umask; False if it exists."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=_DIRECTORY_MODE)
    except FileExistsError:
        return False
    path.chmod(mode)  # not by mkdir, of whose mode the umask takes bits
    return True


def make_private_parents(path: Path) -> None:
    """Create *path* and its missing parents; no other user may enter what this creates."""
    missing = [*takewhile(lambda each: not each.exists(), (path, *path.parents))]
    for each in reversed(missing):
        each.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)


def is_own_directory(path: Path) -> bool:
    """Return whether *path* is a directory, not a link, and this user's."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def open_to_others(path: Path) -> int:
    """Return the permission bits of *path* for group and others; 0 if the file is missing."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o077
    except FileNotFoundError:
        return 0


def write_secret(path: Path, text: str) -> None:
    """Replace *path* by a file that holds *text* and that only this user can read."""
    # It is not synced: a start of a node, or of its service, writes a new secret.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, _SECRET_MODE), "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), _SECRET_MODE)
        file.write(text)
    temporary.replace(path)
