"""What a power failure leaves of the files of one directory, which lie on a memory file system.

The files are real, so nothing that a node writes can bypass the simulation: maps, plain writes,
renames. This module only keeps what is *durable*: the content of each file when it was last synced,
and the names of each directory when that was. All else may remain or be lost, sector by sector and
name by name. A sync that failed leaves what it should have written as Linux does: it counts as
written, and no later sync writes it unless it is stored again.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SECTOR = 512
_open, _close = os.open, os.close  # the real ones, whatever takes their place meanwhile
_PAGE = 4096
_SURVIVAL = (0.0, 0.0, 0.1, 0.5, 0.9, 1.0)


class Entry(NamedTuple):
    """A name in a directory."""

    inode: int
    is_directory: bool


class DurableFiles:
    """What is durable in *root*, and what a power failure leaves of it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._content: dict[int, bytes] = {}  # by inode, when it was last synced
        self._names: dict[int, dict[str, Entry]] = {}
        self._gone: dict[int, bytes] = {}  # of files without a name now
        self._dropped: dict[int, dict[int, bytes]] = {}  # sectors that a failed sync did not write
        self.sync_all()

    def sync_all(self) -> None:
        """Make everything durable as it is now."""
        self._content, self._names = {}, {}
        self._gone, self._dropped = {}, {}
        for directory, entries in _walk(str(self._root)):
            self._names[directory] = {name: entry for name, (entry, _) in entries.items()}
            for entry, path in entries.values():
                if not entry.is_directory:
                    self._content[entry.inode] = _read(path)

    def sync(self, descriptor: int) -> None:
        """Make a file's content, or a directory's names, durable."""
        path = f"/proc/self/fd/{descriptor}"
        found = os.fstat(descriptor)
        inode = found.st_ino
        if stat.S_ISDIR(found.st_mode):
            self._names[inode] = {name: entry for name, (entry, _) in _entries(path).items()}
            return
        now = _read(path)
        stale = {
            at: kept
            for at, kept in self._dropped.pop(inode, {}).items()
            if now[at : at + SECTOR] == kept
        }
        self._content[inode] = self._with_stale(inode, now, stale)
        if stale:
            self._dropped[inode] = stale

    def fail_sync(self, descriptor: int) -> None:
        """Take for written what is not: every sector that differs from what is durable."""
        inode = os.fstat(descriptor).st_ino
        now = _read(f"/proc/self/fd/{descriptor}")
        old = self._content.get(inode, b"").ljust(len(now), b"\0")
        dropped = self._dropped.setdefault(inode, {})
        for at in range(0, len(now), SECTOR):
            if now[at : at + SECTOR] != old[at : at + SECTOR]:
                dropped[at] = now[at : at + SECTOR]

    def rewrite(self, inode: int, start: int, end: int) -> None:
        """Note that these bytes were stored again, so their pages are written by the next sync."""
        dropped = self._dropped.get(inode, {})
        for at in range(start - start % _PAGE, -(-end // _PAGE) * _PAGE, SECTOR):
            dropped.pop(at, None)

    def forget_name(self, path: str) -> None:
        """Keep the content of a file that is about to lose its name."""
        try:
            found = os.lstat(path)
            self._gone[found.st_ino] = _read(path)
        except OSError:  # there is none, or it is a directory
            return

    def write_back(self, chance: random.Random) -> None:
        """Write some of what is not synced, as the system does at any time."""
        share = chance.choice(_SURVIVAL)
        for _, entries in _walk(str(self._root)):
            for entry, path in entries.values():
                if not entry.is_directory and chance.random() < 0.3:
                    now = _read(path)
                    old = self._content.get(entry.inode)
                    if old is not None and old != now:
                        self._content[entry.inode] = self._mixed(
                            old, now, share, chance, self._dropped.get(entry.inode, {})
                        )

    def lose_power(self, chance: random.Random) -> tuple[dict[Path, bytes], list[Path]]:
        """Return the files and directories, by relative paths, that a power failure now leaves."""
        share = chance.choice(_SURVIVAL)
        where: dict[int, str] = {}
        for _, entries in _walk(str(self._root)):
            where |= {entry.inode: path for entry, path in entries.values()}
        files: dict[Path, bytes] = {}
        directories: list[Path] = []

        def visit(inode: int, now: dict[str, tuple[Entry, str]], at: Path) -> None:
            durable = self._names.get(inode, {})
            for name in sorted(durable.keys() | now.keys()):
                old = durable.get(name)
                new = now[name][0] if name in now else None
                entry = new if old == new or chance.random() < share else old
                if entry is None:
                    continue
                path = where.get(entry.inode)
                if entry.is_directory:
                    directories.append(at / name)
                    visit(entry.inode, {} if path is None else _entries(path), at / name)
                else:
                    files[at / name] = self._left_of(entry.inode, path, share, chance)

        visit(self._root.stat().st_ino, _entries(str(self._root)), Path())
        return files, directories

    def become(self, files: dict[Path, bytes], directories: list[Path]) -> None:
        """Replace everything in the directory; all of it is durable."""
        for path in self._root.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for directory in directories:
            (self._root / directory).mkdir()
        for path, content in files.items():
            (self._root / path).write_bytes(content)
        self.sync_all()

    def _left_of(self, inode: int, path: str | None, share: float, chance: random.Random) -> bytes:
        old = self._content.get(inode, b"")
        now = self._gone.get(inode, old) if path is None else _read(path)
        return self._mixed(old, now, share, chance, self._dropped.get(inode, {}))

    def _mixed(
        self, old: bytes, now: bytes, share: float, chance: random.Random, dropped: dict[int, bytes]
    ) -> bytes:
        """Return some sectors of *now*, the rest of *old*."""
        if old == now:
            return now
        size = len(now) if len(old) == len(now) or chance.random() < share else len(old)
        before, after = _sectors(old, size), _sectors(now, size)
        differs = (before != after).any(axis=1)
        coins = np.random.default_rng(chance.getrandbits(32)).random(len(differs))
        taken = differs & (coins < share)
        for at, kept in dropped.items():  # the system has no reason to write these
            if at < size and now[at : at + SECTOR] == kept:
                taken[at // SECTOR] = False
        return np.where(taken[:, None], after, before).tobytes()[:size]

    def _with_stale(self, inode: int, now: bytes, stale: dict[int, bytes]) -> bytes:
        """Return *now*, with what is durable already where the system believes it wrote."""
        if not stale:
            return now
        old = self._content.get(inode, b"").ljust(len(now), b"\0")
        content = bytearray(now)
        for at in stale:
            content[at : at + SECTOR] = old[at : at + SECTOR]
        return bytes(content[: len(now)])


def read_all(root: Path) -> dict[Path, bytes]:
    """Return the content of every file below *root*."""
    return {
        Path(path): _read(path)
        for _, entries in _walk(str(root))
        for entry, path in entries.values()
        if not entry.is_directory
    }


def _read(path: str) -> bytes:
    descriptor = _open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        _close(descriptor)


def _entries(directory: str) -> dict[str, tuple[Entry, str]]:
    with os.scandir(directory) as found:
        return {
            one.name: (Entry(one.inode(), one.is_dir(follow_symlinks=False)), one.path)
            for one in found
            if not one.is_symlink()
        }


def _walk(directory: str) -> Iterator[tuple[int, dict[str, tuple[Entry, str]]]]:
    """Yield the inode and the entries of each directory, from the top."""
    entries = _entries(directory)
    yield Path(directory).stat().st_ino, entries
    for entry, path in entries.values():
        if entry.is_directory:
            yield from _walk(path)


def _sectors(content: bytes, size: int) -> npt.NDArray[np.uint8]:
    """Return the first *size* bytes, with zeros behind a shorter content, as rows of a sector."""
    padded = -(-size // SECTOR) * SECTOR
    return np.frombuffer(content[:size].ljust(padded, b"\0"), np.uint8).reshape(-1, SECTOR)
