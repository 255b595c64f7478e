"""Copies of single files: the same bytes, holes, and what is wrong with a copy."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

from rocketray.broker.backups.file_copy import FileSum, copy_file, sum_of
from rocketray.errors import StoreError

MIB = 1 << 20


def test_a_copy_has_the_used_bytes_and_zeros_behind_them(
    tmp_path: Path, rng: random.Random
) -> None:
    source = tmp_path / "source"
    pieces = [rng.randbytes(rng.randrange(2 * MIB)), bytes(rng.randrange(3 * MIB)), b"end"]
    content = b"".join(pieces)
    source.write_bytes(content)
    source.chmod(0o640)
    for number, used in enumerate([None, 0, rng.randrange(len(content)), len(content)]):
        target = tmp_path / str(number) / "copy"
        copied: list[int] = []
        found = copy_file(source, target, used, copied.append)
        part = content if used is None else content[:used]
        assert found == FileSum(len(content), len(part), zlib.crc32(part))
        assert found == sum_of(target, len(part))
        assert sum(copied) == len(part)
        assert target.read_bytes() == part.ljust(len(content), b"\0")
        assert target.stat().st_mode & 0o777 == 0o640


def test_zeros_stay_a_hole(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(8 * MIB) + b"x")
    copy_file(source, target)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks * 512 < MIB


def test_an_old_copy_is_replaced_as_a_whole(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(10))
    target.write_bytes(b"longer than the source")
    copy_file(source, target)
    assert target.read_bytes() == bytes(10)


def test_a_block_that_the_disk_does_not_keep_is_found(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"x" * MIB)

    def damage(_: int) -> None:
        with target.open("r+b") as file:
            file.seek(1000)
            file.write(b"y")

    with pytest.raises(StoreError, match=f"{target}: it has CRC-32 .* its disk may be failing"):
        copy_file(source, target, on_bytes=damage)


def test_a_source_that_is_too_short_is_reported(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"12345")
    with pytest.raises(StoreError, match=f"{source}: it has 5 bytes, and 6 are expected"):
        copy_file(source, tmp_path / "target", 6)
    with pytest.raises(FileNotFoundError):
        copy_file(tmp_path / "missing", tmp_path / "target")
