"""ConsumeQueueExt, read-only: where a queue entry keeps its tags code when it has a filter bitmap.

The entry then holds an address, at most -2147483649: the unit's offset in this space minus 2**63.
Unit: i16 size | i64 tags code | i64 store time | i16 bitmap bytes | bitmap. Units do not cross
files; a size below 1 means that there is none. Source: RocketMQ 5.3.3, ``ConsumeQueueExt``.
"""

from __future__ import annotations

import struct
from pathlib import Path

from rocketray.kernels.layout import TAGS_CODE_EXT_MAX

from .file_system import SYSTEM_FILES, FileSystem
from .mapped_file_queue import MappedFileQueue

__all__ = ["ConsumeQueueExt"]

_UNIT = struct.Struct(">hqqh")
_ADDRESS_BASE = 1 << 63


class ConsumeQueueExt:
    """The ext files of one queue."""

    def __init__(self, directory: Path, file_system: FileSystem = SYSTEM_FILES) -> None:
        """Find the files. Their size is taken from the first: RocketMQ keeps it in a setting."""
        names = [name for name in file_system.names(directory) if name.isdecimal()]
        size = file_system.size(directory / names[0]) if names else _UNIT.size
        self._files = MappedFileQueue(
            directory, max(size, _UNIT.size), read_only=True, file_system=file_system
        )

    def tags_code(self, field: int) -> int | None:
        """The tags code for the third *field* of a queue entry; None for an address of nothing."""
        if field > TAGS_CODE_EXT_MAX:
            return field
        offset = field + _ADDRESS_BASE
        file = self._files.file(offset) if offset >= 0 else None
        raw = file.read(offset - file.start, _UNIT.size) if file else b""
        if len(raw) < _UNIT.size:
            return None
        size, tags_code, _, bitmap_bytes = _UNIT.unpack(raw)
        return tags_code if size == _UNIT.size + bitmap_bytes else None

    def close(self) -> None:
        """Unmap the files."""
        self._files.close()
