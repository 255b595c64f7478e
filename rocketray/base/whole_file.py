"""Small files, replaced atomically: readers find the old or the new one, also after a crash.

The new content is written beside the file and renamed over it. The remains of a killed process
are named ``FILE.PID.tmp``. A store's own files go through its
:class:`~rocketray.store.files.file_system.FileSystem` instead (``replace_file`` there).
"""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Replace the content of *path*, and create its directory if needed. Durable on return.

    Without *sync* the file survives this process, but not a power failure.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The content is on disk before it gets the name, and the name after it: a power failure leaves
    # the old file or the new one.
    write_beside(path, content, sync=sync).replace(path)
    if sync:
        sync_directory(path.parent)


def write_beside(path: Path, content: bytes, *, sync: bool = True) -> Path:
    """Write *content* to a temporary file beside *path*; durable on return if *sync* is true."""
    # The process id keeps two processes that replace one file from writing into one temporary file.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    return temporary


def sync_directory(directory: Path) -> None:
    """Sync the names in *directory* to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
