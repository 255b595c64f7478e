"""Directories whose names survive power loss: a new name is on disk when its directory is synced."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["make_directory", "sync_directory"]


def make_directory(directory: Path) -> None:
    """Make *directory* and what is missing above it; their names are on disk when it returns."""
    missing: list[Path] = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Bring the names in *directory* to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
