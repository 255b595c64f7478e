"""The done messages of a delay queue: one bit per message, in files beside the queue's.

Later messages may become due before earlier ones, so a single offset is not enough. Bit k of byte n
stands for queue offset 8 n + k. All messages before the first file are done.

Bits are only ever set, each on its own, and a sector holds its content from before a write or after
it. So a power failure loses marks at worst, and never creates one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.store.files.file_system import SYSTEM_FILES, FileSystem
from rocketray.store.files.mapped_file_queue import MappedFileQueue, Repair

_FILE_BYTES = 64 * 1024  # for 524,288 messages; whole files are removed, so that many are the unit
_BITS = 8


class DoneMarks:
    """The marks of one queue. For one thread at a time."""

    def __init__(
        self, directory: Path, begin: int, *, file_system: FileSystem = SYSTEM_FILES
    ) -> None:
        """Open the files, or begin with the file of queue offset *begin*."""
        self._files = MappedFileQueue(
            directory, _FILE_BYTES, read_only=False, repair=Repair.SHORT, file_system=file_system
        )
        if not self._files.starts:
            self._files.ensure(begin // _BITS, _FILE_BYTES)
        self._first_open = self._files.min_offset * _BITS

    def mark(self, offsets: npt.NDArray[np.int64]) -> None:
        """Mark the messages at *offsets* as done; the marks are on disk when this returns.

        Raises:
            StoreFullError: there is no room; nothing was marked.
        """
        if not len(offsets):
            return
        places, bits = offsets // _BITS, np.left_shift(1, offsets % _BITS).astype(np.uint8)
        while self._files.end <= int(places.max()):
            self._files.ensure(self._files.end, _FILE_BYTES)
        for file in self._files.files_between(int(places.min()), int(places.max()) + 1):
            inside = (places >= file.start) & (places < file.start + file.size)
            if inside.any():
                file.reserve(file.size, 0)  # a copied file may be sparse
                np.bitwise_or.at(file.data, places[inside] - file.start, bits[inside])
                file.flush()
        self._files.flush(0, 0)  # the names of new files

    def are_done(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return for each message from *start* up to, not including, *stop* whether it is done."""
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
        """Return for each message at *offsets*, in any order, whether it is done."""
        places = offsets // _BITS
        done: npt.NDArray[np.bool_] = places < self._files.min_offset
        if len(places):
            for file in self._files.files_between(int(places.min()), int(places.max()) + 1):
                inside = (places >= file.start) & (places < file.start + file.size)
                bits = file.data[places[inside] - file.start] >> (offsets[inside] % _BITS)
                done[inside] = bits & 1
        return done

    def first_open(self, end: int) -> int:
        """Return the first message before *end* that is not done, or *end*."""
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
        self._files.close()
