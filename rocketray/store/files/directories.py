"""Directories whose names survive power loss: a name is durable once its directory is synced."""

from __future__ import annotations

from pathlib import Path

from .file_system import FileSystem

__all__ = ["make_directory"]


def make_directory(file_system: FileSystem, directory: Path) -> None:
    """Create *directory* and its missing parents; their names are durable on return."""
    missing: list[Path] = []
    while not file_system.exists(directory):
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        file_system.make_directory(path)
        file_system.sync(path.parent)
