"""``abort``: the mark of a store that is open for writing, so that finding it means a crash.

Its first line is the process id, as RocketMQ writes it; RocketMQ only asks whether the file is
there. The second line is ours:

    {"boot": 17…, "atRest": null}

``boot`` is that of the system in which the opening of the store was complete: the names of all
files and directories were on disk then. ``atRest`` is what a clean stop would write down
(recovery/clean_stop.py) while everything is on disk and nothing is being written, else null.

The line is for a process of the same boot, which sees in the system's cache what a killed one
wrote. It is never synced, and one of another boot counts as missing: after a power failure nothing
depends on it. So it needs no version: a release that changes its meaning changes its keys.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson

from .file_system import FileSystem

_NAME = "abort"
_MAX_BYTES = 4096  # a page: after a kill it has the old content or the new one
_PID_BYTES_MAX = 20  # a process id and its newline, with room
_BOOT, _AT_REST = "boot", "atRest"


def was_clean(directory: Path, file_system: FileSystem) -> bool:
    """Return whether the last writer of *directory* closed it, or there was none."""
    return not file_system.exists(directory / _NAME)


def writer_of(directory: Path, file_system: FileSystem) -> str:
    """Return which process has *directory* open, as a message names it."""
    try:
        first = file_system.read(directory / _NAME, _PID_BYTES_MAX).split(b"\n")[0]
        return f"process {int(first)}"
    except (OSError, ValueError):
        return "another process"


class OpenMark:
    """The mark of one store directory, for its writer."""

    def __init__(self, directory: Path, file_system: FileSystem) -> None:
        """Read what the last writer left."""
        self._path = directory / _NAME
        self._file_system = file_system
        self._boot = file_system.boot()
        self.was_clean = was_clean(directory, file_system)
        """Whether the last writer closed the store, or there was none."""
        found: dict[str, Any] = {} if self.was_clean else self._read()
        self.has_durable_names = bool(found)
        """Whether an opening of this boot was complete since the last clean stop."""
        self.at_rest: object = found.get(_AT_REST)
        """What the last writer noted of a store at rest; None if it was not."""

    def begin(self) -> None:
        """Mark the store open; from now on an end without :meth:`remove` counts as a crash."""
        if self.has_durable_names:
            self.note(None)
        else:
            # Without our line: the names count as durable only when note() writes it.
            self._write(b"")
            self._file_system.sync(self._path.parent)

    def note(self, at_rest: object) -> bool:
        """Note that the opening was complete, and what is known of a store *at_rest*.

        Return False if that is too long to be noted.
        """
        line = orjson.dumps(
            {_BOOT: self._boot, _AT_REST: at_rest}, option=orjson.OPT_APPEND_NEWLINE
        )
        if len(line) > _MAX_BYTES - _PID_BYTES_MAX:
            return False
        self._write(line)
        return True

    def remove(self) -> None:
        """Remove the mark, after a clean stop; durable on return."""
        self._file_system.unlink(self._path)
        self._file_system.sync(self._path.parent)

    def _write(self, line: bytes) -> None:
        self._file_system.write(self._path, b"%d\n%b" % (os.getpid(), line))

    def _read(self) -> dict[str, Any]:
        """Return our line, if it is whole and of this boot; else nothing."""
        lines = self._file_system.read(self._path, _MAX_BYTES).split(b"\n")
        try:
            found = orjson.loads(lines[1])
        except (IndexError, ValueError):
            return {}
        is_of_now = isinstance(found, dict) and self._boot and found.get(_BOOT) == self._boot
        return found if is_of_now else {}
