"""Numbers that processes of one node share, and the wake-ups that come with them.

A *line* is 64 bytes of a mapped file, alone on its cache line:

    +0   i64  value       native-endian, 8-aligned, so a store is never seen half
    +8   u32  futex       changes with every publication
    +12  u32  waiters     how many sleep on it; nobody is woken when it is 0

Invariants
  1. A line has one writer, but for doorbells, which anyone rings.
  2. What a value stands for is written before the value: a reader that saw the value sees it all.
  3. A waiter always has a timeout, so a writer that died never keeps it for ever.

The control page of a shard lies in its store directory and outlives the processes.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.actors.files.private_files import make_private_parents
from rocketray.errors import ShardFencedError, StoreError, StoreFullError, StoreVersionError
from rocketray.kernels import futex
from rocketray.store.files.file_system import few_enough_files

__all__ = ["LINE_BYTES", "ControlPage", "Doorbell", "Line", "Patience", "SharedFile"]

LINE_BYTES = 64
_PAGE_BYTES = 4096
_SPINS = 2_500  # 20 to 50 ns each; a process that sleeps takes as long to wake up
_SOON_S = 0.0001
_WAIT_SLICE_S = 0.05  # invariant 3; also bounds what a lost wake-up could cost


class SharedFile:
    """A file of fixed size, mapped for reading and writing by several processes."""

    def __init__(self, path: Path, size: int | None = None, *, is_own: bool = True) -> None:
        """Map *path*; with *size* it is made first when it is not there yet.

        A file that is not this user's, or a link, is not taken, unless *is_own* is false.

        Raises:
            StoreFullError: there is no room for it; a later write would be a SIGBUS.
            StoreVersionError: it is too short, as where its maker was killed while making it.
            StoreError: this process has too many open files, or the file is another user's.
        """
        self.path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_NOFOLLOW if is_own else 0)
        if size is not None:
            flags |= os.O_CREAT
            make_private_parents(path.parent)
        with few_enough_files(path):
            descriptor = os.open(path, flags, 0o600)
        is_made = False
        try:
            if is_own:
                _check_owner(path, descriptor)
            if size is not None and os.fstat(descriptor).st_size < size:
                is_made = True
                os.posix_fallocate(descriptor, 0, size)
            there = os.fstat(descriptor).st_size
            if there < _PAGE_BYTES:
                raise StoreVersionError(f"{path} has {there} bytes: it was never made whole")
            with few_enough_files(path):  # a map has a descriptor of its own
                self._map = mmap.mmap(descriptor, 0)
        except (OSError, StoreError) as error:
            if is_made:  # one that was there is in use
                path.unlink(missing_ok=True)
            if isinstance(error, StoreError):
                raise
            raise StoreFullError(f"{path}: no room for it in memory: {error}") from error
        finally:
            os.close(descriptor)
        self.memory = memoryview(self._map)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    def line(self, number: int) -> Line:
        """The line with that number from the start of the file."""
        assert (number + 1) * LINE_BYTES <= len(self.bytes)
        return Line(self, number * LINE_BYTES)

    def unlink(self) -> None:
        """Remove the name; the memory lives on in whoever has it mapped."""
        self.path.unlink(missing_ok=True)


def _check_owner(path: Path, descriptor: int) -> None:
    if os.fstat(descriptor).st_uid != os.getuid():
        raise StoreError(
            f"{path}: another user made it, so nothing in it can be trusted; stop the node and "
            "start it again"
        )


class Patience:
    """Whether a waiter looks for some 50 µs before it sleeps: where the last wait was that short.

    Of two processes that answer each other, the one that fell asleep costs both a wake-up. Where
    the answer takes longer, looking only keeps the processor from whoever has to give it.
    """

    __slots__ = ("spins",)

    def __init__(self) -> None:
        self.spins = _SPINS
        """How often to look before sleeping."""

    def learn(self, waited_s: float) -> None:
        """Take note of how long a wait took, asleep or not."""
        self.spins = _SPINS if waited_s <= _SOON_S else 0


class Line:
    """One shared number (see the module's docstring); keeps its file mapped."""

    __slots__ = ("_address", "_file")

    def __init__(self, file: SharedFile, position: int) -> None:
        assert position % LINE_BYTES == 0
        self._file = file
        self._address = int(file.bytes.ctypes.data) + position

    @property
    def address(self) -> int:
        """Where the line is, for kernels, as long as it lives."""
        return self._address

    def load(self) -> int:
        """The value, and all that was written before it."""
        return futex.load(self._address)

    def publish(self, value: int) -> None:
        """Set the value and wake who waits for it."""
        futex.publish(self._address, value)

    def ring(self) -> None:
        """Add one, whoever else does at the same time, and wake who waits."""
        futex.ring(self._address)

    def wait_above(self, seen: int, timeout_s: float, patience: Patience | None = None) -> int:
        """The value, as soon as it is greater than *seen* or the time is over; releases the GIL.

        With *patience* it looks for a while before it sleeps.
        """
        value = self.load()
        spins = 0 if patience is None else patience.spins
        begun = time.monotonic()
        while value <= seen and timeout_s > 0:
            part = min(timeout_s, _WAIT_SLICE_S)
            value = futex.wait_above(self._address, seen, int(part * 1e9), spins)
            timeout_s -= part
            spins = 0
        if patience is not None:
            patience.learn(time.monotonic() - begun)
        return value


class Doorbell:
    """A line on a file of its own: anyone rings it, one process sleeps on it.

    A second line says that the sleeper wants to be left alone: a futex call costs the one who
    rings some 15 µs.
    """

    def __init__(self, path: Path) -> None:
        self._file = SharedFile(path, _PAGE_BYTES)
        self._line = self._file.line(0)
        self._muted = self._file.line(1)

    def ring(self) -> None:
        """Wake the sleeper, or keep it from falling asleep, unless it is muted."""
        if not self._muted.load():
            self._line.ring()

    def mute(self, *, muted: bool) -> None:
        """Say, as the sleeper, whether rings are of no use; look for work after unmuting."""
        self._muted.publish(muted)

    def count(self) -> int:
        """How often it has been rung; read it before looking for work."""
        return self._line.load()

    def wait(self, seen: int, timeout_s: float) -> None:
        """Sleep until it was rung since :meth:`count` gave *seen*, or the time is over."""
        self._line.wait_above(seen, timeout_s)

    def unlink(self) -> None:
        """Remove the file."""
        self._file.unlink()


class ControlPage:
    """What a shard tells all processes of its node.

    Lines: 0 format, 1 visible queue offset, 2 minimum queue offset, 3 flushed physical offset,
    4 epoch, 5 doorbell of the shard's writer, 6 version of the filters that its bitmaps are of.
    """

    _FORMAT = int.from_bytes(b"rktrctl1", "little")

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Map the page; ``create`` is for the shard's writer, who holds the store's lock.

        Raises:
            FileNotFoundError: the shard has never run.
            StoreVersionError: the file is not a control page of this version.
        """
        self._file = SharedFile(path, _PAGE_BYTES if create else None, is_own=False)
        lines = [self._file.line(number) for number in range(7)]
        kind, self._visible, self._minimum, self._flushed, self._epoch, self._doorbell = lines[:6]
        self._filters = lines[6]
        if create and kind.load() == 0:
            kind.publish(self._FORMAT)
        if kind.load() != self._FORMAT:
            raise StoreVersionError(f"{path} is not a control page that this version can read")

    def visible(self) -> int:
        """The queue offset after the last message that readers may see."""
        return self._visible.load()

    def publish_visible(self, queue_offset: int) -> None:
        """Let readers see everything below *queue_offset*."""
        self._visible.publish(queue_offset)

    def minimum(self) -> int:
        """The first queue offset that is still there."""
        return self._minimum.load()

    def publish_minimum(self, queue_offset: int) -> None:
        """Say that everything below *queue_offset* is gone."""
        self._minimum.publish(queue_offset)

    def flushed(self) -> int:
        """The physical offset below which everything survives power loss."""
        return self._flushed.load()

    def publish_flushed(self, physical_offset: int) -> None:
        """Say that everything below *physical_offset* is on disk."""
        self._flushed.publish(physical_offset)

    def filters(self) -> int:
        """The version of the file of filters that bitmaps are made of."""
        return self._filters.load()

    def publish_filters(self, version: int) -> None:
        """Say that the file of filters has another version."""
        self._filters.publish(version)

    def take_epoch(self) -> int:
        """Begin a new incarnation of the writer and return its epoch; the others are fenced."""
        epoch = self._epoch.load() + 1
        self._epoch.publish(epoch)
        return epoch

    @property
    def epoch(self) -> Line:
        """The epoch of the newest incarnation."""
        return self._epoch

    def check_epoch(self, epoch: int) -> None:
        """Raise :class:`ShardFencedError` when a newer incarnation has begun."""
        current = self._epoch.load()
        if current != epoch:
            raise ShardFencedError(
                f"{self._file.path.parent}: this process holds epoch {epoch} and the shard is at "
                f"{current}; a newer process owns it, so nothing was appended: connect again"
            )

    @property
    def doorbell(self) -> Line:
        """Rung by producers when a ring has something for the writer."""
        return self._doorbell
