"""Reads past the page cache: what is in it stays, and nothing is added."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketray.store.files import uncached
from rocketray.store.files.uncached import DISK_BLOCK_BYTES, _cached_pages, read_uncached

pytestmark = pytest.mark.proves(
    "durability",
    "Reading again takes no page out of the cache and adds none, and holds its rate",
)

PAGES = 32
CONTENT = bytes(range(251)) * (PAGES * mmap.PAGESIZE // 251)  # ends within a page


@pytest.fixture
def path() -> Iterator[Path]:
    """A file on a disk, of which the cache has the first four pages."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        file = Path(directory) / "file"
        file.write_bytes(CONTENT)
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            if _cached_pages(opened.fileno(), 0, len(CONTENT)).any():
                pytest.skip("/var/tmp is in memory")
            os.pread(opened.fileno(), 4 * mmap.PAGESIZE, 0)
        yield file


def cached(path: Path) -> list[bool]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return [*_cached_pages(descriptor, 0, len(CONTENT)).tolist()]
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_read_leaves_the_page_cache_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, is_direct: bool
) -> None:
    if not is_direct:
        monkeypatch.setattr(uncached, "_DIRECT", 0)
    before = cached(path)
    assert before[:4] == [True] * 4
    assert not all(before)
    assert read_uncached(path, 0, len(CONTENT)).tobytes() == CONTENT
    assert cached(path) == before
    start = 2 * DISK_BLOCK_BYTES
    assert read_uncached(path, start, 5000).tobytes() == CONTENT[start : start + 5000]
    assert cached(path) == before


def test_a_read_returns_what_the_file_has(path: Path) -> None:
    last = (PAGES - 1) * mmap.PAGESIZE
    assert read_uncached(path, last, 1 << 20).tobytes() == CONTENT[last:]
    assert read_uncached(path, PAGES * mmap.PAGESIZE, 100).tobytes() == b""
    with pytest.raises(FileNotFoundError):
        read_uncached(path.with_name("none"), 0, 1)


def test_a_file_system_without_direct_reads_is_read_nevertheless(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuse(name: Path, flags: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument", str(name))
        return real(name, flags)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert read_uncached(path, 0, 10).tobytes() == CONTENT[:10]
