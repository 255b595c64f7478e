"""Numbers that processes of one node share, and the wake-ups that come with them.

A *line* is 64 bytes of a mapped file, alone on its cache line:

    +0   i64  value       native-endian, 8-aligned, so a store is never seen half
    +8   u32  futex       changes with every publication
    +12  u32  waiters     number of waiters; a publication wakes none if it is 0

Invariants
  1. A line has one writer, except for doorbells, which any process rings.
  2. Data that a value stands for is written before the value: a reader that has seen the value sees
     all of it.
  3. A waiter always has a timeout, so a writer that died cannot block it for ever.

The control page of a shard is in its store directory and outlives the processes.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketray.errors import (
    ShardFencedError,
    ShardUnavailableError,
    StoreError,
    StoreFullError,
    StoreVersionError,
)
from rocketray.kernels import futex
from rocketray.runtime.files.paths import control_path
from rocketray.runtime.files.private_files import make_private_parents
from rocketray.store.files.file_maps import map_file
from rocketray.store.files.file_system import few_enough_files

LINE_BYTES = 64
_PAGE_BYTES = 4096  # the least that can be mapped: room for 64 lines
_SPIN_CYCLES = 600_000  # at 2 to 3 GHz as long as the time below
_SOON_S = 0.00025  # five wake-ups: see AdaptiveSpin
# Until the coordinator, or an operator, has made the directory: no wake-up tells a waiting reader.
_NOT_MADE_RETRY_MS = 5000
_WAIT_SLICE_S = 0.05  # Python handles a signal between two sleeps, so Ctrl-C at most so much later


class SharedFile:
    """A file of fixed size, mapped for reading and writing by several processes."""

    def __init__(
        self,
        path: Path,
        size: int | None = None,
        *,
        is_own: bool = True,
        watches_size: bool = False,
    ) -> None:
        """Map *path*; with *size*, create it first if it is missing.

        A file that is not this user's, or a link, is refused, unless *is_own* is false. Only a file
        of which *watches_size* is true, for :attr:`is_whole`, holds a descriptor.

        Raises:
            StoreFullError: there is no room for it; a later write would be a SIGBUS.
            StoreVersionError: it is too short, as when its creator was killed while creating it.
            StoreError: this process has too many open files or maps, or the file is another user's.
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
                # Now, as an error: room that is missing at a later write is a SIGBUS.
                os.posix_fallocate(descriptor, 0, size)
            found = os.fstat(descriptor)
            there, self._inode = found.st_size, found.st_ino
            if there < _PAGE_BYTES:
                raise StoreVersionError(f"{path} has {there} bytes: it was never completed")
            if watches_size:
                with few_enough_files(path):  # such a map has a descriptor of its own
                    self._map = mmap.mmap(descriptor, there)
            else:
                self._map = map_file(path, descriptor, there, read_only=False)
            self._watches_size = watches_size
        except (OSError, StoreError) as error:
            if is_made:  # an existing file is in use
                path.unlink(missing_ok=True)
            if isinstance(error, StoreError):
                raise
            raise StoreFullError(f"{path}: not enough memory for it: {error}") from error
        finally:
            os.close(descriptor)
        self.memory = memoryview(self._map)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    def line(self, number: int) -> SharedCounter:
        """Return the line with that number from the start of the file."""
        assert (number + 1) * LINE_BYTES <= len(self.bytes)
        return SharedCounter(self, number * LINE_BYTES)

    @property
    def is_whole(self) -> bool:
        """Whether the file still has all its bytes; touching one beyond its end is a SIGBUS."""
        assert self._watches_size
        return self._map.size() >= len(self.bytes)

    def is_there(self) -> bool:
        """Return whether the name still leads to it."""
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def unlink(self) -> None:
        """Remove the name; processes that have the file mapped keep its memory."""
        self.path.unlink(missing_ok=True)


def _check_owner(path: Path, descriptor: int) -> None:
    if os.fstat(descriptor).st_uid != os.getuid():
        raise StoreError(
            f"{path}: another user created it, so it cannot be trusted; stop the node and start it "
            "again"
        )


class AdaptiveSpin:
    """Adaptive spinning: a waiter spins for 0.25 ms before it sleeps, if its last wait was shorter.

    Of two processes that answer each other, a sleeping one costs both of them a wake-up, some 50 µs
    on a virtual machine. If the answer takes longer, spinning is a waste. So a shard's process that
    gets a batch every 0.25 ms or more often never sleeps, and one that gets them less often never
    spins. A spinning process yields its processor to any other that is ready there.
    """

    __slots__ = ("cycles",)

    def __init__(self) -> None:
        self.cycles = _SPIN_CYCLES
        """How long to spin before sleeping, in cycles of the processor."""

    def learn(self, waited_s: float) -> None:
        """Record how long a wait took, asleep or not."""
        self.cycles = _SPIN_CYCLES if waited_s <= _SOON_S else 0


class SharedCounter:
    """One shared number (see the module's docstring); keeps its file mapped."""

    __slots__ = ("_file", "address")

    def __init__(self, file: SharedFile, position: int) -> None:
        assert position % LINE_BYTES == 0
        self._file = file
        self.address = int(file.bytes.ctypes.data) + position
        """Address of the line, for kernels, as long as it lives."""

    def load(self) -> int:
        """Return the value; all data written before it is visible."""
        return futex.load(self.address)

    def publish(self, value: int) -> None:
        """Set the value and wake its waiters."""
        futex.publish(self.address, value)

    def ring(self) -> None:
        """Add one, atomically against other processes, and wake the waiters."""
        futex.ring(self.address)

    def wait_above(
        self,
        seen: int,
        timeout_s: float,
        spin: AdaptiveSpin | None = None,
        *,
        slice_s: float = _WAIT_SLICE_S,
        gives_up: Callable[[], bool] | None = None,
    ) -> int:
        """Return the value once it is above *seen* or the time is over; releases the GIL.

        With *spin* it spins for a while before it sleeps, if that was worthwhile last time. It
        wakes up each *slice_s*: the main thread of a program handles its signals then. It also
        wakes up for a value that is not above *seen*. Each time, *gives_up* may end the wait.
        """
        value = futex.load(self.address)
        cycles = 0 if spin is None else spin.cycles
        begun = now = time.monotonic()
        end = begun + timeout_s
        while value <= seen and now < end:
            part = min(end - now, slice_s)
            value = futex.wait_above(self.address, seen, int(part * 1e9), cycles)
            now = time.monotonic()
            cycles = 0  # it slept, so the value does not come soon
            if gives_up is not None and value <= seen and gives_up():
                break
        if spin is not None:
            spin.learn(now - begun)
        return value


class Doorbell:
    """A line on a file of its own: any process rings it, one process sleeps on it.

    On a second line the sleeper says that it must not be woken: a futex call costs the ringing
    process some 15 µs. The sleeper may watch other lines, too: each publication on them is a ring.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = SharedFile(path, _PAGE_BYTES)
        self._line = self._file.line(0)
        self._muted = self._file.line(1)
        # Over the lines, their addresses and what was seen of them, which change together; not held
        # in a sleep, so a line can be watched meanwhile: from the next sleep on.
        self._lock = threading.Lock()
        self._lines = [self._line]  # and those that it watches
        self._addresses = np.array([self._line.address], np.int64)
        self._seen = np.zeros(1, np.int64)
        """The values of the lines when the sleeper last began to look for work."""

    def ring(self) -> None:
        """Wake the sleeper, or keep it from falling asleep, unless it is muted."""
        if not self._muted.load():
            self._line.ring()

    def mute(self, *, muted: bool) -> None:
        """Turn rings off or on, as the sleeper; look for work after unmuting."""
        self._muted.publish(muted)

    def watch(self, line: SharedCounter) -> bool:
        """Watch *line* from now on, before looking for work on it; False if that is impossible."""
        with self._lock:
            if not futex.can_wait_any() or len(self._lines) >= futex.MOST_LINES:
                return False
            self._set([*self._lines, line], np.append(self._seen, line.load()))
            return True

    def unwatch(self, line: SharedCounter) -> None:
        """Watch *line* no more, if it was watched; once, if it was so twice."""
        with self._lock:
            if line in self._lines:
                place = self._lines.index(line)
                rest = [*self._lines[:place], *self._lines[place + 1 :]]
                self._set(rest, np.delete(self._seen, place))

    def _set(self, lines: list[SharedCounter], seen: npt.NDArray[np.int64]) -> None:
        self._lines, self._seen = lines, seen
        self._addresses = np.array([line.address for line in lines], np.int64)

    def count(self) -> int:
        """Return the number of rings; read it before looking for work."""
        with self._lock:
            futex.load_all(self._addresses, self._seen)
            return int(self._seen[0])

    def wait(self, seen: int, timeout_s: float) -> None:
        """Sleep until it was rung since :meth:`count` returned *seen*, or the time is over."""
        with self._lock:
            lines, addresses, values = self._lines, self._addresses, self._seen.copy()
        if len(lines) == 1:
            self._line.wait_above(seen, timeout_s)
            return
        values[0] = seen
        now = np.empty_like(values)
        futex.load_all(addresses, now)
        end_s = time.monotonic() + timeout_s
        while (now <= values).all() and (left_s := end_s - time.monotonic()) > 0:
            futex.wait_any(addresses, values, int(min(left_s, _WAIT_SLICE_S) * 1e9))
            futex.load_all(addresses, now)

    def sleep(self, seen: int, timeout_s: float) -> None:
        """Do the same in one sleep, in a thread that handles no signals."""
        self._line.wait_above(seen, timeout_s, slice_s=timeout_s)

    def unlink(self) -> None:
        self._file.unlink()


class ControlPage:
    """The numbers of a shard that all processes of its node can read.

    Lines: 0 format, 1 visible queue offset, 2 minimum queue offset, 3 flushed physical offset, 4
    epoch, 5 unused, 6 version of the filters that its bitmaps are made from.
    """

    _FORMAT = int.from_bytes(b"rktrctl1", "little")

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Map the page; ``create`` is for the shard's writer, which holds the store's lock.

        Raises:
            FileNotFoundError: the shard has never run.
            StoreVersionError: the file is not a control page of this version.
        """
        # Not only our own: in a data directory, its mode decides who may read and write.
        self._file = SharedFile(path, _PAGE_BYTES if create else None, is_own=False)
        lines = [self._file.line(number) for number in range(7)]
        kind, visible, minimum, flushed, epoch, _, filters = lines
        self.visible, self.publish_visible = visible.load, visible.publish
        """The queue offset after the last message that readers may see."""
        self.watermark = visible
        """Its line, for those that watch it."""
        self.minimum, self.publish_minimum = minimum.load, minimum.publish
        """The first queue offset that still exists."""
        self.flushed, self.publish_flushed = flushed.load, flushed.publish
        """The physical offset below which everything survives power loss."""
        self.filters, self.publish_filters = filters.load, filters.publish
        """The version of the filter file that bitmaps are made from."""
        self.epoch = epoch
        """The epoch of the newest incarnation."""
        self.is_there = self._file.is_there
        """Return whether the queue is still in that directory: it is gone once it was moved."""
        if create and kind.load() == 0:  # a new file is all zeros
            kind.publish(self._FORMAT)
        if kind.load() != self._FORMAT:
            raise StoreVersionError(
                f"{path} is not a control page that this release of rocketray can read; use the "
                "release that wrote it, or a newer one"
            )

    def take_epoch(self) -> int:
        """Begin a new incarnation of the writer and return its epoch; earlier ones are fenced."""
        # No atomic addition: the holder of the store's lock is the only one that calls this.
        epoch = self.epoch.load() + 1
        self.epoch.publish(epoch)
        return epoch

    def check_epoch(self, epoch: int) -> None:
        """Raise :class:`ShardFencedError` if a newer incarnation has begun."""
        current = self.epoch.load()
        if current != epoch:
            raise ShardFencedError(
                f"{self._file.path.parent}: this process has epoch {epoch} and the shard is at "
                f"epoch {current}; a newer process owns it, so nothing was appended: connect again"
            )


def control_of(data: Path, topic: str, queue_id: int) -> ControlPage:
    """Map the control page of a queue that is on the disk *data*.

    Raises:
        ShardUnavailableError: there is no such queue on it, or not any more.
    """
    try:
        return ControlPage(control_path(data, topic, queue_id))
    except FileNotFoundError:
        raise not_here(topic, queue_id) from None


def not_here(topic: str, queue_id: int) -> ShardUnavailableError:
    """Return the error of a queue whose directory is not there, or not any more."""
    return ShardUnavailableError(
        f"shard {topic}/{queue_id}",
        "it has no directory on this disk: it is not created yet, stays closed, or was moved or "
        "deleted; see: rocketray status",
        _NOT_MADE_RETRY_MS,
    )
