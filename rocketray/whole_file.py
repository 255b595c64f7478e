"""Small files that are replaced whole: a reader, also after a crash, finds the old one or the new one.

The new content is written beside the file and takes its name by a rename. What a killed process
left beside it is named ``FILE.PID.tmp``. A store's own files go through its
:class:`~rocketray.store.files.file_system.FileSystem` instead (``replace_file`` there).
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["replace_file", "sync_directory", "write_beside"]


def replace_file(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Let *path* hold *content*; its directory is made if need be. On disk when it returns.

    Without *sync* the file outlives this process, and not a power failure.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_beside(path, content, sync=sync).replace(path)
    if sync:
        sync_directory(path.parent)


def write_beside(path: Path, content: bytes, *, sync: bool = True) -> Path:
    """Write a file with *content* that is to take the name *path*; on disk unless not to *sync*."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    return temporary


def sync_directory(directory: Path) -> None:
    """Bring the names of *directory* to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
