"""One simulated machine: what the system does for a node's processes, and how it fails.

:func:`simulated` takes the place of a few functions of ``os``, ``time``, ``uuid`` and ``secrets``
for the whole process, so it runs in a process of its own. Every call that changes what is on disk
is counted, and a *fuse* goes off at one of them: the power fails, or the process that made the call
is killed. From then on no call of that process does anything until it is started again.

Invariants
  1. A seed repeats everything: clocks, process ids, random names and files are the machine's own,
     and no thread is started.
  2. A killed process has written what it wrote until then: what its clean-up code writes to maps
     afterwards is undone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import secrets
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from rocketray.broker.topics import topic_start
from rocketray.runtime.files.paths import runtime_directory
from rocketray.store.files import file_system
from rocketray.testing import Clock

from .disk import DurableFiles, read_all

_FIRST_PID = 1 << 23  # greater than any real one
_CALL_MS = 0.05  # how long a reading of the monotonic clock takes: waits end
_MAKES = os.O_CREAT | os.O_TRUNC


class PowerLostError(BaseException):
    """The power has failed; nothing of this call, and of later ones, reached the disk."""


class KilledError(BaseException):
    """The process that made this call was killed just before it."""


class Machine:
    """The disk, the clocks and the processes of one machine."""

    def __init__(self, data: Path, chance: random.Random, clock: Clock) -> None:
        self.data = data
        self.chance = chance
        self.clock = clock
        self.files = DurableFiles(data)
        self.boots = 1
        self.pid = _FIRST_PID
        """The process that runs now."""
        self.living: set[int] = set()
        self.calls = 0
        """The number of calls that change the disk."""
        self.is_full = False
        """Whether the disk has no room."""
        self.fails_sync: Callable[[str], bool] = lambda _path: False
        self._fuse: tuple[int, type[BaseException]] | None = None
        self.down: type[BaseException] | None = None
        """What calls raise, because the process that makes them is dead."""
        self._frozen: dict[Path, bytes] = {}
        self._left: tuple[dict[Path, bytes], list[Path]] | None = None
        self._booted_ms = clock.elapsed()
        self._drift_ms = 0.0
        self._newest_pid = _FIRST_PID
        self._root = f"{data}/"
        self._locks: dict[int, tuple[str, int]] = {}  # path and process, by descriptor

    # Clocks

    def steady_ms(self) -> int:
        """Return the milliseconds since the machine was booted."""
        return 1000 + self.clock.elapsed() - self._booted_ms

    def monotonic(self) -> float:
        """Return the seconds since then; each reading takes a moment."""
        self._drift_ms += _CALL_MS
        return (self.steady_ms() + self._drift_ms) / 1000

    def pass_ms(self, milliseconds: float) -> None:
        """Let a call take that long."""
        self._drift_ms += milliseconds

    # Processes

    def new_process(self) -> int:
        """Return the process id of a new process."""
        self._newest_pid += 1
        self.living.add(self._newest_pid)
        return self._newest_pid

    @contextmanager
    def running(self, pid: int) -> Iterator[None]:
        """Let process *pid* make the calls in the block."""
        before, self.pid = self.pid, pid
        try:
            yield
        finally:
            self.pid = before

    # Failures

    def light(self, calls: int, how: type[BaseException]) -> None:
        """Fail in that many calls from now."""
        self._fuse = self.calls + calls, how

    def snuff(self) -> None:
        """Take the fuse out, if it has not gone off."""
        self._fuse = None

    def fail(self, how: type[BaseException]) -> None:
        """Lose power, or kill, now; the caller raises."""
        self._fuse, self.down = None, how
        if how is PowerLostError:
            self._left = self.files.lose_power(self.chance)
        else:
            self._frozen = read_all(self.data)

    def undo_clean_up(self) -> None:
        """Let calls work again after a process was killed, with its files as it left them."""
        frozen, self._frozen, self.down = self._frozen, {}, None
        now = read_all(self.data)
        for path in now.keys() - frozen.keys():
            path.unlink()
        for path, content in frozen.items():
            if now.get(path) != content:
                with path.open("r+b" if path in now else "wb") as file:
                    file.write(content)
                    file.truncate()

    def reboot(self) -> None:
        """Start the machine again after a power failure."""
        assert self._left is not None
        self.down = None
        self.files.become(*self._left)
        self._left = None
        self.boots += 1
        self.living.clear()
        self.release_locks()
        self._booted_ms = self.clock.elapsed()
        self.forget_runtime()

    def forget_runtime(self) -> None:
        """Remove what the processes share in memory."""
        shutil.rmtree(runtime_directory(self.data), ignore_errors=True)

    def note_lock(self, descriptor: int, path: str) -> None:
        """Remember a file that is opened to be locked."""
        self._locks[descriptor] = path, self.pid

    def forget_lock(self, descriptor: int) -> None:
        """Forget a file that is closed."""
        self._locks.pop(descriptor, None)

    def release_locks(self, below: str = "/", pid: int | None = None) -> None:
        """Release the locks of dead processes on files *below* a directory, or of one process."""
        for descriptor, (path, owner) in [*self._locks.items()]:
            if path.startswith(below) and pid in (None, owner):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                del self._locks[descriptor]

    def tick(self, path: str) -> None:
        """Count a call that changes the disk, and fail if it is time."""
        if self.down is not None:
            raise self.down
        self.calls += 1
        if self._fuse is not None and self.calls >= self._fuse[0]:
            how = self._fuse[1]
            self.fail(how)
            raise how(path)

    def is_watched(self, path: str) -> bool:
        """Return whether a path is on the disk."""
        return path.startswith(self._root) or path == self._root[:-1]


@contextmanager
def simulated(machine: Machine) -> Iterator[None]:
    """Make *machine* the machine of this process for the block."""
    calls = _Calls(machine)
    chance = machine.chance

    def token_hex(count: int | None = None) -> str:
        return f"{chance.getrandbits(8 * (count or 32)):0{2 * (count or 32)}x}"

    replaced: list[tuple[Any, str, Any]] = [
        *((os, name, getattr(calls, name)) for name in calls.names),
        (os, "getpid", lambda: machine.pid),
        (time, "monotonic", machine.monotonic),
        (time, "sleep", lambda _seconds: None),
        (time, "clock_gettime_ns", lambda _: machine.steady_ms() * 1_000_000),
        (uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4)),
        (secrets, "token_hex", token_hex),
        (threading.Thread, "start", _not_started),
        (threading.Thread, "join", lambda *_: None),
        (threading.Condition, "wait", calls.waiting()),
        (threading, "_time", machine.monotonic),
        (topic_start, "_PATIENCE_S", 0),
        (file_system.FileSystem, "boot", lambda _self: machine.boots),
        (file_system.OpenFile, "rewrite", _rewriting(machine)),
        (file_system, "sync_map", calls.sync_map),
    ]
    patches = [mock.patch.object(*one) for one in replaced]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()


def _not_started(thread: threading.Thread) -> None:
    """Run nothing: what the threads of a node do by themselves, the simulation does by steps."""


def _rewriting(machine: Machine) -> Callable[..., None]:
    def rewrite(self: Any, content: Any, start: int, end: int) -> None:
        page = 4096
        pages = content[start - start % page : end : page]
        np.bitwise_or(pages, 0, out=pages)
        machine.files.rewrite(self._path.stat().st_ino, start, end)

    return rewrite


class _Calls:
    """The calls of ``os`` that change the disk, as the machine makes them."""

    names = (
        "fsync", "fdatasync", "rename", "replace", "unlink", "remove", "rmdir", "mkdir", "open",
        "posix_fallocate", "ftruncate", "pwrite", "close", "kill",
    )  # fmt: skip

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._real = {name: getattr(os, name) for name in self.names}

    def fsync(self, descriptor: int) -> None:
        path = _path_of(descriptor)
        if not self._is_on_disk(path):
            return
        self._machine.tick(path)
        if self._machine.fails_sync(path):
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                self._machine.files.fail_sync(descriptor)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        self._machine.files.sync(descriptor)

    fdatasync = fsync

    def sync_map(self, path: Path, _address: int, _size: int) -> None:
        descriptor = self._real["open"](path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self.fsync(descriptor)
        finally:
            self._real["close"](descriptor)

    def rename(self, source: Any, target: Any, **options: Any) -> None:
        self._change(str(target))
        self._machine.files.forget_name(str(target))
        self._real["rename"](source, target, **options)

    replace = rename

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        whole = str(path) if dir_fd is None else f"{_path_of(dir_fd)}/{path}"
        self._change(whole)
        if self._machine.is_watched(whole):
            self._machine.files.forget_name(whole)
        self._real["unlink"](path, dir_fd=dir_fd)

    remove = unlink

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._change(str(path) if dir_fd is None else f"{_path_of(dir_fd)}/{path}")
        self._real["rmdir"](path, dir_fd=dir_fd)

    def mkdir(self, path: Any, mode: int = 0o777, **options: Any) -> None:
        self._change(str(path))
        self._real["mkdir"](path, mode, **options)

    def open(self, path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if flags & _MAKES:
            self._change(str(path), takes_room=True)
        found: int = self._real["open"](path, flags, mode, **options)
        if str(path).endswith(("/lock", ".lock")):
            self._machine.note_lock(found, str(path))
        return found

    def close(self, descriptor: int) -> None:
        self._machine.forget_lock(descriptor)
        self._real["close"](descriptor)

    def posix_fallocate(self, descriptor: int, start: int, size: int) -> None:
        self._change(_path_of(descriptor), takes_room=True)
        self._real["posix_fallocate"](descriptor, start, size)

    def ftruncate(self, descriptor: int, size: int) -> None:
        self._change(_path_of(descriptor))
        self._real["ftruncate"](descriptor, size)

    def pwrite(self, descriptor: int, content: Any, offset: int) -> int:
        self._change(_path_of(descriptor))
        written: int = self._real["pwrite"](descriptor, content, offset)
        self._machine.files.rewrite(os.fstat(descriptor).st_ino, offset, offset + written)
        return written

    def waiting(self) -> Callable[..., bool]:
        """Return a wait of a condition, which is in vain: there is no other thread."""

        def wait(_condition: threading.Condition, seconds: float | None = None) -> bool:
            if self._machine.down is not None:
                raise self._machine.down
            assert seconds is not None, "nobody would ever wake it"
            self._machine.pass_ms(1000 * seconds)
            return False

        return wait

    def kill(self, pid: int, signal: int) -> None:
        if pid <= _FIRST_PID:
            self._real["kill"](pid, signal)
        elif pid not in self._machine.living:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))

    def _change(self, path: str, *, takes_room: bool = False) -> None:
        if self._machine.down is not None:
            raise self._machine.down
        if not self._is_on_disk(path):
            return
        self._machine.tick(path)
        if takes_room and self._machine.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def _is_on_disk(self, path: str) -> bool:
        return self._machine.is_watched(path)


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - called for each call
