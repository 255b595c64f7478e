"""Which messages of a queue are done: a bit a message, in files beside the queue's.

A message that waits for its time may be overtaken by a later one, so one offset does not tell.
Bit k of byte n stands for queue offset 8 n + k. What is before the first file is done.

Bits are only ever set, each by itself, and a sector holds what it held before a write or after it:
so a power failure loses at most marks, and never makes one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.mapped_file_queue import MappedFileQueue, Mend

__all__ = ["DoneMarks"]

_FILE_BYTES = 64 * 1024  # for 524,288 messages
_BITS = 8


class DoneMarks:
    """The marks of one queue. For one thread at a time."""

    def __init__(
        self, directory: Path, begin: int, *, file_system: FileSystem = SYSTEM_FILES
    ) -> None:
        """Find the files, or begin with that of queue offset *begin*."""
        self._files = MappedFileQueue(
            directory, _FILE_BYTES, read_only=False, mend=Mend.SHORT, file_system=file_system
        )
        if not self._files.starts:
            self._files.ensure(begin // _BITS)
        self._first_open = self._files.min_offset * _BITS

    def mark(self, offsets: npt.NDArray[np.int64]) -> None:
        """Say that the messages at *offsets* are done; it is on disk when this returns.

        Raises:
            StoreFullError: there is no room; nothing was marked.
        """
        if not len(offsets):
            return
        places, bits = offsets // _BITS, np.left_shift(1, offsets % _BITS).astype(np.uint8)
        while self._files.end <= int(places.max()):
            self._files.ensure(self._files.end)
        for file in self._files.files_between(int(places.min()), int(places.max()) + 1):
            inside = (places >= file.start) & (places < file.start + file.size)
            if inside.any():
                np.bitwise_or.at(file.data, places[inside] - file.start, bits[inside])
                file.flush()
        self._files.flush(0, 0)  # the names of new files

    def are_done(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Which of the messages from *start* up to, not including, *stop* are done."""
        done: npt.NDArray[np.bool_] = np.zeros(max(stop - start, 0), np.bool_)
        begin = self._files.min_offset * _BITS
        done[: max(begin - start, 0)] = True
        for file in self._files.files_between(start // _BITS, -(-stop // _BITS)):
            first = max(start, file.start * _BITS)
            last = min(stop, (file.start + file.size) * _BITS)
            raw = file.data[first // _BITS - file.start : -(-last // _BITS) - file.start]
            bits = np.unpackbits(raw, bitorder="little").astype(np.bool_)
            skipped = first % _BITS
            done[first - start : last - start] = bits[skipped : skipped + last - first]
        return done

    def of(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of the messages at *offsets*, in any order, are done."""
        places = offsets // _BITS
        done: npt.NDArray[np.bool_] = places < self._files.min_offset
        if len(places):
            for file in self._files.files_between(int(places.min()), int(places.max()) + 1):
                inside = (places >= file.start) & (places < file.start + file.size)
                bits = file.data[places[inside] - file.start] >> (offsets[inside] % _BITS)
                done[inside] = bits & 1
        return done

    def first_open(self, end: int) -> int:
        """The first message before *end* that is not done, or *end*."""
        while self._first_open < end:
            stop = min(end, self._first_open + _FILE_BYTES * _BITS)
            done = self.are_done(self._first_open, stop)
            if not done.all():
                self._first_open += int(done.argmin())
                return self._first_open
            self._first_open = stop
        return end

    def forget_before(self, offset: int) -> None:
        """Remove files of messages before *offset*, all of which are done."""
        self._files.forget_before(offset // _BITS)
        self._files.remove_forgotten()

    def close(self) -> None:
        """Unmap the files."""
        self._files.close()
