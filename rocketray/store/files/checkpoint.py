"""The checkpoint: the store time up to which each kind of file is known to be on disk.

4096 bytes: i64 physicMsgTimestamp, logicsMsgTimestamp, indexMsgTimestamp, masterFlushedOffset and
confirmPhyOffset, then zeros. A file that is missing or too short counts as all zeros: then nothing
is trusted and recovery reads the whole log. Source: RocketMQ 5.3.3, ``StoreCheckpoint``.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from pathlib import Path

from .file_system import SYSTEM_FILES, FileSystem
from .mapped_file import create_file

__all__ = ["Checkpoint", "ensure_checkpoint", "read_checkpoint", "write_checkpoint"]

_FIELDS = struct.Struct(">qqqqq")
_FILE_BYTES = 4096
_MARGIN_MS = 3000  # as RocketMQ's, for store times that are slightly out of order


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Store times of the last flushed record, queue entry and index entry, in milliseconds."""

    log_timestamp_ms: int = 0
    queue_timestamp_ms: int = 0
    index_timestamp_ms: int = 0

    def trusted_until_ms(self) -> int:
        """Return the store time at or before which records and their queue entries are on disk."""
        return max(0, min(self.log_timestamp_ms, self.queue_timestamp_ms) - _MARGIN_MS)


def read_checkpoint(path: Path, file_system: FileSystem = SYSTEM_FILES) -> Checkpoint:
    """Return the checkpoint in *path*, or zeros."""
    try:
        raw = file_system.read(path, _FIELDS.size)
    except FileNotFoundError:
        raw = b""
    if len(raw) < _FIELDS.size:
        return Checkpoint()
    return Checkpoint(*_FIELDS.unpack(raw)[:3])


def ensure_checkpoint(path: Path, file_system: FileSystem = SYSTEM_FILES) -> None:
    """Create the file with its blocks, so that a full disk cannot fail a later flush.

    Raises:
        StoreFullError: there is no space for it.
    """
    if not file_system.exists(path):
        create_file(file_system, path, _FILE_BYTES, _FILE_BYTES)


def write_checkpoint(
    path: Path, checkpoint: Checkpoint, file_system: FileSystem = SYSTEM_FILES
) -> None:
    """Write *checkpoint* to *path*; durable on return."""
    content = _FIELDS.pack(*astuple(checkpoint), 0, 0).ljust(_FILE_BYTES, b"\0")
    file_system.write(path, content)
    file_system.sync(path)
