"""The checkpoint: the store time up to which each kind of file is known to be on disk.

4096 bytes: i64 physicMsgTimestamp, logicsMsgTimestamp, indexMsgTimestamp, masterFlushedOffset and
confirmPhyOffset, then zeros. A file that is missing or too short counts as all zeros: then nothing
is trusted and recovery reads the whole log. Source: RocketMQ 5.3.3, ``StoreCheckpoint``.

At byte 2048 are numbers of ours, which RocketMQ leaves alone: i64 unflushedMax, i64 boot, and the
u32 CRC32 of the two.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import astuple, dataclass
from pathlib import Path

from .file_system import SYSTEM_FILES, FileSystem
from .mapped_file import create_file

_FIELDS = struct.Struct(">qqqqq")
_OURS = struct.Struct(">qq")
_OURS_CRC = struct.Struct(">I")
# In the middle of the page, far behind RocketMQ's 40 bytes: a broker may get further fields.
_OURS_AT = 2048
_FILE_BYTES = 4096
_MARGIN_MS = 3000  # RocketMQ's margin, for store times slightly out of order


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is on disk: store times of the last record, queue entry and index entry.

    ``unflushed_max`` is how many messages of each queue may have been lost when the system that was
    then running, ``boot``, ended with the store open; both are 0 if the file does not say so.
    """

    log_timestamp_ms: int = 0
    queue_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    unflushed_max: int = 0
    boot: int = 0

    def trusted_until_ms(self) -> int:
        """Return the store time at or before which records and their queue entries are on disk."""
        return max(0, min(self.log_timestamp_ms, self.queue_timestamp_ms) - _MARGIN_MS)


def read_checkpoint(path: Path, file_system: FileSystem = SYSTEM_FILES) -> Checkpoint:
    """Return the checkpoint in *path*, or zeros."""
    try:
        raw = file_system.read(path, _FILE_BYTES)
    except FileNotFoundError:
        raw = b""
    if len(raw) < _FIELDS.size:
        return Checkpoint()
    log_ms, queue_ms, index_ms, _, _ = _FIELDS.unpack_from(raw)
    return Checkpoint(log_ms, queue_ms, index_ms, *_ours(raw[_OURS_AT:]))


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
    *times, unflushed_max, boot = astuple(checkpoint)
    ours = _OURS.pack(unflushed_max, boot)
    content = _FIELDS.pack(*times, 0, 0)
    # Without our numbers the file is RocketMQ's own, zeros included.
    if unflushed_max:
        content = content.ljust(_OURS_AT, b"\0") + ours + _OURS_CRC.pack(zlib.crc32(ours))
    file_system.write(path, content.ljust(_FILE_BYTES, b"\0"))
    file_system.sync(path)


def _ours(raw: bytes) -> tuple[int, int]:
    """Return our numbers from *raw*, or zeros."""
    if len(raw) < _OURS.size + _OURS_CRC.size:
        return 0, 0
    unflushed_max, boot = _OURS.unpack_from(raw)
    (crc,) = _OURS_CRC.unpack_from(raw, _OURS.size)
    return (unflushed_max, boot) if crc == zlib.crc32(raw[: _OURS.size]) else (0, 0)
