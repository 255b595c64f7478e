"""The explicit upgrade of a store of an older rocketray to the current version."""

from __future__ import annotations

from pathlib import Path

from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.lock import StoreLock
from rocketray.store.files.store_settings import upgrade_settings

__all__ = ["upgrade_store"]


def upgrade_store(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> int:
    """Upgrade *directory*, which must not be open; return the version that it had.

    Its files stay unchanged, because every version since the first is a part of the next; but older
    versions cannot open it for writing any more. Repeating it has no effect.

    Raises:
        StoreLockedError: the directory is open.
        ConfigError: RocketMQ wrote it.
        StoreVersionError: a newer rocketray did.
    """
    lock = StoreLock(directory, file_system)
    try:
        return upgrade_settings(directory, file_system)
    finally:
        lock.release(clean=False)
