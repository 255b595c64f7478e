"""A disk in memory that keeps what was not synced in its own hands.

What a store writes is seen by it at once, as in a page cache. At a power failure there remains,
sector by sector, what was synced or anything that stood there since; name by name, what was there
when the directory was last synced, or now; and of a file that never was synced perhaps not even
its size. A sync that :attr:`SimDisk.before` lets fail leaves what it should have written as on Linux:
readers see it, and no later sync writes it unless it is stored again. :meth:`SimDisk.outcomes` lists what may remain, and :meth:`Outcome.disk` is one of it.
"""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketray.store.files.file_system import FileLock, FileSystem, OpenFile

SECTOR = 512
_ROOT = Path("/")
_BOOTS = itertools.count(1)


class PowerLostError(Exception):
    """The power went at this call; nothing of it reached the disk."""


def power_fails_after(calls: int) -> Callable[[str, Path], None]:
    """What to set :attr:`SimDisk.before` to, for a power failure at one of the next calls."""
    left = itertools.count(calls, -1)

    def fail(name: str, path: Path) -> None:
        if next(left) <= 0:
            raise PowerLostError(f"{name} {path}")

    return fail


class Bound(NamedTuple):
    """How far outcomes are enumerated: all of them up to ``all_up_to``, else a part.

    The part: nothing and everything kept; every single change kept, and every single one lost;
    every beginning of the changes in the order of names and offsets; for each file all or nothing,
    up to ``all_up_to``; and ``random_count`` at random.
    """

    all_up_to: int
    random_count: int


class _Inode:
    """A file: what it holds now, and what the disk may hold of it."""

    def __init__(self, content: bytes = b"", *, synced: bool = False) -> None:
        self._descriptor = os.memfd_create("sim")
        os.pwrite(self._descriptor, content, 0)
        self.durable = content if synced else b""
        self.versions: list[bytes] = []
        """What it held at each :meth:`SimDisk.note` since it was synced."""
        self.dropped: dict[int, bytes] = {}
        """The sectors that a sync failed to write, as they were then; taken for written."""

    def __del__(self) -> None:
        os.close(self._descriptor)

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def content(self) -> bytes:
        return os.pread(self._descriptor, self.size, 0)

    def resize(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def write(self, content: bytes) -> None:
        os.pwrite(self._descriptor, content, 0)
        self.resize(len(content))
        self.dropped.clear()

    def map(self) -> mmap.mmap:
        return mmap.mmap(self._descriptor, self.size)

    def sync(self) -> None:
        now, before = self.content(), self.durable
        self.durable, self.versions = now, []
        if self.dropped:
            self._keep_dropped(now, before.ljust(len(now), b"\0"))

    def _keep_dropped(self, now: bytes, before: bytes) -> None:
        sectors = {at: now[at : at + SECTOR] for at in range(0, len(now), SECTOR)}
        stale = {at: kept for at, kept in self.dropped.items() if sectors.get(at) == kept}
        self.durable = b"".join(
            before[at : at + SECTOR] if at in stale else sector for at, sector in sectors.items()
        )
        self.dropped = stale

    def fail_sync(self) -> None:
        """Take for written what is not: every sector that may differ on the disk."""
        self.note()
        now = self.content()
        self.dropped |= {at: now[at : at + SECTOR] for at, _ in self.changes()}

    def rewrite(self, start: int, end: int) -> None:
        page = mmap.PAGESIZE
        for at in range(start - start % page, -(-end // page) * page, SECTOR):
            self.dropped.pop(at, None)

    def note(self) -> None:
        now = self.content()
        if now != (self.versions[-1] if self.versions else self.durable):
            self.versions.append(now)

    def changes(self) -> list[tuple[int, list[bytes]]]:
        """The sectors of which more than one content may remain, and these, the oldest first."""
        size = max(map(len, [self.durable, *self.versions]))
        contents = [one.ljust(size, b"\0") for one in [self.durable, *self.versions]]
        found = []
        for at in range(0, size, SECTOR):
            kept = list(dict.fromkeys(one[at : at + SECTOR] for one in contents))
            if len(kept) > 1:
                found.append((at, kept))
        return found


class _Directory:
    def __init__(self) -> None:
        self.names: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}


_Node = _Inode | _Directory


@dataclass(frozen=True)
class Outcome:
    """What a power failure left: files by their paths, and the directories."""

    files: dict[Path, bytes]
    directories: tuple[Path, ...]

    def key(self) -> tuple[frozenset[tuple[Path, bytes]], tuple[Path, ...]]:
        """Equal for equal disks."""
        return frozenset(self.files.items()), self.directories

    def disk(self) -> SimDisk:
        """A disk that holds this and nothing else."""
        disk = SimDisk()
        for directory in self.directories:
            disk.make_directory(directory)
        for path, content in self.files.items():
            disk.put(path, _Inode(content, synced=True))
        for directory in (_ROOT, *self.directories):
            disk.sync(directory)
        return disk


@dataclass(frozen=True)
class _Choice:
    """One thing that may remain in several ways; ``file`` says what it belongs to."""

    file: Path
    count: int
    apply: Callable[[dict[Path, bytearray | None], int], None]


@dataclass
class SimDisk(FileSystem):
    """A file system of :mod:`rocketray.store.files.file_system` in memory.

    ``before`` is called with the name of each operation and its path, and may raise.
    """

    before: Callable[[str, Path], None] = lambda _name, _path: None
    root: _Directory = field(default_factory=_Directory)
    locks: set[Path] = field(default_factory=set)
    boot_number: int = field(default_factory=lambda: next(_BOOTS))

    # What the store asks for

    def boot(self) -> int:
        return self.boot_number

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._find(path), _Directory)

    def names(self, directory: Path) -> list[str]:
        found = self._find(directory)
        return sorted(found.names) if isinstance(found, _Directory) else []

    def size(self, path: Path) -> int:
        return self._inode(path).size

    def read(self, path: Path, limit: int) -> bytes:
        return self._inode(path).content()[:limit]

    def read_uncached(self, path: Path, start: int, size: int) -> npt.NDArray[np.uint8]:
        self.before("read_uncached", path)
        return np.frombuffer(self._inode(path).content()[start : start + size], np.uint8)

    def write(self, path: Path, content: bytes) -> None:
        self.before("write", path)
        if not self.exists(path):
            self.put(path, _Inode())
        self._inode(path).write(content)

    def create(self, path: Path, size: int, allocated_size: int) -> None:
        assert 0 <= allocated_size <= size
        self.before("create", path)
        self.put(path, _Inode())
        self._inode(path).resize(size)

    def open(self, path: Path, *, read_only: bool) -> OpenFile:
        del read_only
        self.before("open", path)
        return _SimFile(self, path, self._inode(path))

    def lock(self, path: Path, content: bytes) -> FileLock:
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, "locked", str(path))
        if not self.exists(path):
            self.put(path, _Inode(content))
        self.locks.add(path)
        return _SimLock(self, path)

    def rename(self, path: Path, new_path: Path) -> None:
        self.before("rename", path)
        node = self._inode(path)
        del self._directory(path.parent).names[path.name]
        self.put(new_path, node)

    def unlink(self, path: Path) -> None:
        self.before("unlink", path)
        self._directory(path.parent).names.pop(path.name, None)

    def make_directory(self, path: Path) -> None:
        self.before("make_directory", path)
        self._directory(path.parent).names.setdefault(path.name, _Directory())

    def sync(self, path: Path) -> None:
        node = self._find(path)
        if isinstance(node, _Directory):
            self.before("sync", path)
            node.durable = dict(node.names)
        else:
            self.sync_file(path, self._inode(path))

    def sync_file(self, path: Path, inode: _Inode) -> None:
        """Sync the content of a file, or fail as :attr:`before` wants it."""
        try:
            self.before("sync", path)
        except OSError:
            inode.fail_sync()
            raise
        inode.sync()

    # What a test asks for

    def put(self, path: Path, inode: _Inode) -> None:
        self._directory(path.parent).names[path.name] = inode

    def note(self) -> None:
        """Remember what all files hold now: a later power failure may leave any sector of it."""
        for _, inode in _files(self.root, _ROOT, durable=False):
            inode.note()

    def content(self) -> dict[Path, bytes]:
        """Every file as the store sees it."""
        return {path: one.content() for path, one in _files(self.root, _ROOT, durable=False)}

    def outcomes(self, bound: Bound, chance: random.Random) -> Iterator[Outcome]:
        """What a power failure now may leave."""
        self.note()
        choices = [*_name_choices(self.root, _ROOT), *_content_choices(self.root)]
        durable = set(_directories(self.root, _ROOT))
        synced = [(path, one.durable) for path, one in _files(self.root, _ROOT, durable=True)]
        for picks in _picks(choices, bound, chance):
            files: dict[Path, bytearray | None] = {
                path: bytearray(content) for path, content in synced
            }
            for choice, pick in zip(choices, picks, strict=True):
                choice.apply(files, pick)
            remaining = {path: bytes(one) for path, one in files.items() if one is not None}
            with_files = {above for path in remaining for above in path.parents} - {_ROOT}
            yield Outcome(remaining, tuple(sorted(durable | with_files)))

    def _find(self, path: Path) -> _Node | None:
        node: _Node | None = self.root
        for name in path.parts[1:]:
            node = node.names.get(name) if isinstance(node, _Directory) else None
        return node

    def _inode(self, path: Path) -> _Inode:
        node = self._find(path)
        if not isinstance(node, _Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return node

    def _directory(self, path: Path) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        return node


class _SimFile(OpenFile):
    def __init__(self, disk: SimDisk, path: Path, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self.size = inode.size
        self.allocated = 0

    def map(self) -> mmap.mmap:
        return self._inode.map()

    def allocate(self, start: int, size: int) -> None:
        self._disk.before("allocate", self._path)
        self._inode.resize(max(self._inode.size, start + size))

    def data_end(self) -> int:
        return len(self._inode.content().rstrip(b"\0"))

    def cut(self, size: int) -> None:
        self._disk.before("cut", self._path)
        self._inode.resize(size)

    def rewrite(self, content: npt.NDArray[np.uint8], start: int, end: int) -> None:
        super().rewrite(content, start, end)
        self._inode.rewrite(start, end)

    def sync(self) -> None:
        self._disk.sync_file(self._path, self._inode)

    def close(self) -> None:
        pass


class _SimLock(FileLock):
    def __init__(self, disk: SimDisk, path: Path) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


def _files(directory: _Directory, at: Path, *, durable: bool) -> Iterator[tuple[Path, _Inode]]:
    for name, node in sorted((directory.durable if durable else directory.names).items()):
        if isinstance(node, _Directory):
            yield from _files(node, at / name, durable=durable)
        else:
            yield at / name, node


def _directories(directory: _Directory, at: Path) -> Iterator[Path]:
    """Yield the directories whose names are on the disk."""
    for name, node in directory.durable.items():
        if isinstance(node, _Directory):
            yield at / name
            yield from _directories(node, at / name)


def _name_choices(directory: _Directory, at: Path) -> Iterator[_Choice]:
    """A name that came, went or changed since its directory was synced: as it was, or is now.

    A directory that was made and not synced is lost, with all that is in it.
    """
    for name in sorted({*directory.durable, *directory.names}):
        old, new = directory.durable.get(name), directory.names.get(name)
        path = at / name
        if isinstance(new, _Directory):
            yield from _name_choices(new, path)
        elif old is not new:
            assert not isinstance(old, _Directory)
            held = [None if one is None else one.durable for one in (old, new)]
            yield _Choice(path, 2, _keeping_name(path, held))


def _keeping_name(
    path: Path, held: list[bytes | None]
) -> Callable[[dict[Path, bytearray | None], int], None]:
    def apply(files: dict[Path, bytearray | None], pick: int) -> None:
        content = held[pick]
        files[path] = None if content is None else bytearray(content)

    return apply


def _content_choices(root: _Directory) -> Iterator[_Choice]:
    """Each sector that changed since its file was synced; applied where its name remains."""
    for path, inode in _files(root, _ROOT, durable=False):
        size = inode.size
        for at, kept in inode.changes():
            yield _Choice(path, len(kept), _keeping_sector(path, at, kept))
        if len(inode.durable) != size:
            yield _Choice(path, 2, _keeping_size(path, size))


def _keeping_sector(
    path: Path, at: int, kept: list[bytes]
) -> Callable[[dict[Path, bytearray | None], int], None]:
    def apply(files: dict[Path, bytearray | None], pick: int) -> None:
        content = files.get(path)
        if content is not None and pick:
            content.extend(bytes(max(at + len(kept[pick]) - len(content), 0)))
            content[at : at + len(kept[pick])] = kept[pick]

    return apply


def _keeping_size(path: Path, size: int) -> Callable[[dict[Path, bytearray | None], int], None]:
    def apply(files: dict[Path, bytearray | None], pick: int) -> None:
        content = files.get(path)
        if content is not None and pick:
            content.extend(bytes(max(size - len(content), 0)))

    return apply


def _picks(
    choices: Sequence[_Choice], bound: Bound, chance: random.Random
) -> Iterator[tuple[int, ...]]:
    """For each choice the number of what remains: 0 is what was synced, the last is now."""
    counts = [choice.count for choice in choices]
    total = 1
    for count in counts:
        total *= count
    if total <= bound.all_up_to:
        yield from itertools.product(*map(range, counts))
        return
    seen = set()
    for picks in itertools.chain(
        _systematic(choices, bound),
        (tuple(map(chance.randrange, counts)) for _ in range(bound.random_count)),
    ):
        if picks not in seen:
            seen.add(picks)
            yield picks


def _systematic(choices: Sequence[_Choice], bound: Bound) -> Iterator[tuple[int, ...]]:
    last = [choice.count - 1 for choice in choices]
    for end in range(len(choices) + 1):
        yield (*last[:end], *([0] * (len(last) - end)))
    for at, count in enumerate(last):
        for pick in range(1, count + 1):
            yield (*([0] * at), pick, *([0] * (len(last) - at - 1)))
        yield (*last[:at], 0, *last[at + 1 :])
    files = sorted({choice.file for choice in choices})
    for kept in itertools.islice(
        itertools.product((False, True), repeat=len(files)), bound.all_up_to
    ):
        keeps = dict(zip(files, kept, strict=True))
        yield tuple(
            most if keeps[choice.file] else 0 for choice, most in zip(choices, last, strict=True)
        )
