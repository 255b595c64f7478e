"""ConsumeQueueExt, read-only: what a queue entry keeps beside its 20 bytes.

The entry then holds an address, at most -2147483649: the unit's offset in this space minus 2**63.
Unit: i16 size | i64 tags code | i64 store time | i16 bitmap bytes | bitmap. Units do not cross
files; a size below 1 means that there is none. Source: RocketMQ 5.3.3, ``ConsumeQueueExt``.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from rocketray.kernels.layout import TAGS_CODE_EXT_MAX

from .file_system import SYSTEM_FILES, FileSystem
from .mapped_file_queue import MappedFileQueue

__all__ = ["ConsumeQueueExt", "ExtUnit"]

_UNIT = struct.Struct(">hqqh")
_ADDRESS_BASE = 1 << 63


class ExtUnit(NamedTuple):
    """One unit. Bit *j* of ``bitmap`` is ``1 << (j % 8)`` of byte ``j // 8``; None for no bitmap."""

    tags_code: int
    store_timestamp_ms: int
    bitmap: bytes | None


class ConsumeQueueExt:
    """The ext files of one queue."""

    def __init__(self, directory: Path, file_system: FileSystem = SYSTEM_FILES) -> None:
        """Find the files. Their size is taken from the first: RocketMQ keeps it in a setting."""
        names = [name for name in file_system.names(directory) if name.isdecimal()]
        size = file_system.size(directory / names[0]) if names else _UNIT.size
        self._files = MappedFileQueue(
            directory, max(size, _UNIT.size), read_only=True, file_system=file_system
        )

    def unit(self, address: int) -> ExtUnit | None:
        """The unit at *address*, the third field of a queue entry; None when there is none."""
        offset = address + _ADDRESS_BASE
        file = self._files.file(offset) if offset >= 0 and address <= TAGS_CODE_EXT_MAX else None
        if file is None:
            return None
        position = offset - file.start
        raw = file.read(position, _UNIT.size)
        if len(raw) < _UNIT.size:
            return None
        size, tags_code, store_timestamp_ms, bitmap_bytes = _UNIT.unpack(raw)
        if bitmap_bytes < 0 or size != _UNIT.size + bitmap_bytes:
            return None
        bitmap = file.read(position + _UNIT.size, bitmap_bytes)
        if len(bitmap) < bitmap_bytes:
            return None
        return ExtUnit(tags_code, store_timestamp_ms, bitmap or None)

    def close(self) -> None:
        """Unmap the files."""
        self._files.close()
