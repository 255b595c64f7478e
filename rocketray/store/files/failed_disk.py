"""``failed_disk.json``: a sync of the store failed, so it is not opened for writing until repaired.

    {"version": 1, "reason": "flushing failed: [Errno 5] Input/output error", "time_ms": 17…}

A disk that failed once may fail again, in silence. So a person looks at it first, and then repairs
the store: ``rocketray store recover``. On a disk that cannot be written there is no such file; then
the next opening writes all again that may not be on disk (recovery.py).
"""

from __future__ import annotations

import logging
from pathlib import Path

import orjson

from rocketray.base.file_form import FileForm
from rocketray.errors import StoreError

from .file_system import FileSystem, replace_file

_NAME = "failed_disk.json"
_FORM = FileForm(_NAME)
_MAX_BYTES = 64 * 1024  # far above the length of a reason
_LOG = logging.getLogger(__name__)


def note_failed_disk(file_system: FileSystem, directory: Path, reason: str, time_ms: int) -> None:
    """Write the file; a failure is only logged: the disk that failed is the one to write to."""
    content = orjson.dumps(_FORM.of({"reason": reason, "time_ms": time_ms}))
    try:
        replace_file(file_system, directory / _NAME, content)
    except (OSError, StoreError) as error:
        _LOG.warning("%s: that its disk failed cannot be noted: %s", directory, error)


def check_disk(file_system: FileSystem, directory: Path) -> None:
    """Raise :class:`StoreError` if the file is there."""
    if not has_failed_disk(file_system, directory):
        return
    try:
        value = _FORM.content(orjson.loads(file_system.read(directory / _NAME, _MAX_BYTES)))
        reason = str(value["reason"])
    except (StoreError, OSError, LookupError, TypeError, ValueError) as error:
        # Damaged, the file still says by its name that a sync failed.
        reason = f"{_NAME} is not readable, {error}"
    raise StoreError(
        f"{directory}: {reason}; its disk may fail again: check it "
        f"(dmesg), then repair the store with: rocketray store recover {directory}"
    )


def has_failed_disk(file_system: FileSystem, directory: Path) -> bool:
    return file_system.exists(directory / _NAME)


def remove_failed_disk(file_system: FileSystem, directory: Path) -> None:
    """Remove the file, if there is one; durable on return."""
    if has_failed_disk(file_system, directory):
        file_system.unlink(directory / _NAME)
        file_system.sync(directory)
