"""Maps without a descriptor are maps of the file in every other respect."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from rocketray.errors import StoreError
from rocketray.store.files.file_maps import address_of, map_file, sync_map

SIZE = 3 * mmap.PAGESIZE + 100

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/maps").is_file(), reason="maps are listed on Linux"
)


@contextmanager
def opened(path: Path, flags: int = os.O_RDWR) -> Iterator[int]:
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def mapped(path: Path, size: int = SIZE, *, read_only: bool = False) -> mmap.mmap:
    with opened(path, os.O_RDONLY if read_only else os.O_RDWR) as descriptor:
        return map_file(path, descriptor, size, read_only=read_only)


@pytest.fixture
def path(tmp_path: Path, seed: int) -> Path:
    path = tmp_path / "file"
    path.write_bytes(random.Random(seed).randbytes(SIZE))
    return path


def maps_of(path: Path) -> int:
    return sum(line.endswith(str(path)) for line in Path("/proc/self/maps").read_text().split("\n"))


def test_it_reads_and_writes_as_python_s_own_map_does(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with opened(path) as descriptor, mmap.mmap(descriptor, SIZE) as twin:
        one = mapped(path)
        reader = mapped(path, read_only=True)
        assert len(one) == len(twin) == SIZE
        for _ in range(200):
            at = rng.randrange(SIZE)
            content = rng.randbytes(min(rng.randrange(1, 5000), SIZE - at))
            rng.choice((one, twin))[at : at + len(content)] = content
            assert one[at:] == twin[at:] == reader[at:]
            assert one.find(content) == twin.find(content)
        sync_map(path, address_of(one), SIZE)
        assert path.read_bytes() == twin[:]


def test_a_map_that_is_only_read_cannot_be_written(path: Path) -> None:
    reader = mapped(path, read_only=True)
    with pytest.raises(TypeError):
        reader[0] = 1
    assert not np.frombuffer(reader, np.uint8).flags.writeable
    with opened(path, os.O_RDONLY) as descriptor, pytest.raises(PermissionError):
        map_file(path, descriptor, SIZE, read_only=False)


@needs_proc
def test_it_is_unmapped_with_its_last_view(path: Path) -> None:
    one = mapped(path)
    view = np.frombuffer(one, np.uint8)[:3]
    with pytest.raises(BufferError):
        one.close()
    del one
    gc.collect()
    assert maps_of(path) == 1
    assert view.tobytes() == path.read_bytes()[:3]
    del view
    gc.collect()
    assert maps_of(path) == 0


@needs_proc
def test_it_takes_one_map_whether_it_is_there_or_closed(path: Path) -> None:
    before = len(Path("/proc/self/maps").read_text().splitlines())
    files = [mapped(path) for _ in range(50)]
    assert maps_of(path) == 50
    for file in files:
        file.close()
    assert maps_of(path) == 0
    assert len(Path("/proc/self/maps").read_text().splitlines()) < before + 10


def test_what_fails_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="an empty file cannot be mapped"):
        mapped(path, 0)
    with pytest.raises(OSError, match="Bad file descriptor") as failed:
        map_file(path, -1, SIZE, read_only=True)
    assert failed.value.filename == str(path)
    with pytest.raises(OSError, match="Invalid argument") as failed:
        sync_map(path, address_of(mapped(path)) + 1, SIZE)
    assert failed.value.filename == str(path)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(mmap, "mmap", fail)
    with pytest.raises(StoreError, match=r"raise the limit of memory maps .*vm\.max_map_count"):
        mapped(path)
