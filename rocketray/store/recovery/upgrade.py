"""Bringing a store that an older rocketray made up to the present version, when somebody asks."""

from __future__ import annotations

from pathlib import Path

from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.lock import StoreLock
from rocketray.store.files.store_settings import upgrade_settings

__all__ = ["upgrade_store"]


def upgrade_store(directory: Path, file_system: FileSystem = SYSTEM_FILES) -> int:
    """Upgrade *directory*, which nobody may have open; returns the version that it had.

    Its files stay as they are, for every version since the first is a part of the next; only older
    ones cannot open it for writing any more. Done twice is as good as once.

    Raises:
        StoreLockedError: somebody has it open.
        ConfigError: RocketMQ wrote it. StoreVersionError: a newer rocketray did.
    """
    lock = StoreLock(directory, file_system)
    try:
        return upgrade_settings(directory, file_system)
    finally:
        lock.release(clean=False)
