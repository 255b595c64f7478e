"""Reading logs: the lines of several processes in the order of their times, and new ones.

A file is read from its last ``TAIL_BYTES`` on, unless lines since some time are wanted; then its
older, rotated files are read, too. Lines without a time above them have that of their process's
start.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from rocketray.runtime.processes import is_alive

from .log_index import LogEntry
from .log_line import LogLine, parse_lines
from .log_output import OLD_FILES, old_name

TAIL_BYTES = 4 << 20  # some 40,000 lines
_CHUNK_BYTES = 1 << 20  # and the longest line that is shown as one


@dataclass(frozen=True, slots=True)
class PartLine:
    """A line with the process that wrote it."""

    entry: LogEntry
    line: LogLine


def merged(tails: Iterable[LogTail], since_ms: int | None = None) -> Iterator[PartLine]:
    """Yield the lines that the files of *tails* have now, in the order of their times."""
    streams = [tail.existing(whole=since_ms is not None) for tail in tails]
    for found in heapq.merge(*streams, key=_time_ms):
        if since_ms is None or _time_ms(found) >= since_ms:
            yield found


@dataclass(slots=True)
class LogTail:
    """One file of a process: what it has, and then what is appended to it."""

    entry: LogEntry
    path: Path
    was_cut: bool = False
    """Whether older lines were not read."""
    is_missing: bool = False
    """Whether the file did not exist when it was read."""
    size: int = 0
    """How many bytes of lines were read."""
    _file: BinaryIO | None = None
    _last_ms: int = field(init=False)
    _rest: bytes = b""

    def __post_init__(self) -> None:
        self._last_ms = self.entry.started_ms

    def existing(self, *, whole: bool) -> Iterator[PartLine]:
        """Yield the lines of the file, and of those that it replaced if it is to be *whole*."""
        older = [old_name(self.path, number + 1) for number in range(OLD_FILES)]
        if whole:
            for path in reversed(older):
                with suppress(FileNotFoundError), path.open("rb") as file:
                    yield from self._timed(_lines(file, self))
        elif any(map(os.path.exists, older)):
            self.was_cut = True
        if not self._open():
            self.is_missing = True
            return
        assert self._file is not None
        if not whole and (start := os.fstat(self._file.fileno()).st_size - TAIL_BYTES) > 0:
            self._file.seek(start)
            self._file.readline()  # the rest of one
            self.was_cut = True
        yield from self._timed(self._with_last_words(self._file))

    def new(self) -> list[PartLine]:
        """Return the lines since the last call; a file that replaced this one is read next."""
        found = self._read_new()
        if self._is_replaced():
            found += self._read_new()  # the last words
            if self._file is not None:
                self._file.close()
            self._file, self._rest = None, b""
            found += self._read_new()
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _with_last_words(self, file: BinaryIO) -> Iterator[str]:
        """Yield the lines, and the beginning of one that the end of its process left."""
        yield from _lines(file, self)
        if self._rest and not is_alive(self.entry.pid):
            yield from self.take(b"\n")

    def _read_new(self) -> list[PartLine]:
        if not self._open():
            return []
        assert self._file is not None
        return list(self._timed(_lines(self._file, self)))

    def _open(self) -> bool:
        if self._file is None:
            with suppress(FileNotFoundError):
                self._file = self.path.open("rb")
        return self._file is not None

    def _is_replaced(self) -> bool:
        if self._file is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    def _timed(self, lines: Iterable[str]) -> Iterator[PartLine]:
        """Yield entries; one without a time has that of the entry above it."""
        for line in parse_lines(lines):
            if line.time_ms is None:
                line = replace(line, time_ms=self._last_ms)  # noqa: PLW2901  # the same, timed
            else:
                self._last_ms = line.time_ms
            yield PartLine(self.entry, line)

    def take(self, chunk: bytes) -> list[str]:
        """Return the complete lines that *chunk* ends; keep the beginning of the next."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self.size += len(chunk)
        # Output without line ends, as of a binary, is shown in parts and not held in memory.
        if len(self._rest) > _CHUNK_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        return [line.decode(errors="backslashreplace") for line in lines]


def _lines(file: BinaryIO, tail: LogTail) -> Iterator[str]:
    """Yield the complete lines of *file* from its position on."""
    while chunk := file.read(_CHUNK_BYTES):
        yield from tail.take(chunk)


def _time_ms(found: PartLine) -> int:
    return found.line.time_ms or 0
