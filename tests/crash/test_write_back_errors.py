"""A disk that fails beneath a file system: a map without a descriptor is told, as a descriptor is.

The system writes data back by itself, or for another program that syncs, and that may fail. Each
open file is told once at its next sync; one that is opened after another was told is told nothing.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.harness import machine

from rocketray.store.files.file_system import SYSTEM_FILES
from rocketray.store.files.mapped_file import MappedFile, create_file

pytestmark = pytest.mark.proves(
    "durability",
    "A write-back that failed is told to the store, though its maps hold no descriptors",
)

FILE_BYTES = 8 << 20


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        machine.skip("disk image", f"{command[0]}: {done.stderr.strip()}")


@contextmanager
def failing_disk(directory: Path) -> Iterator[Path]:
    """An ext4 file system on a disk that has room for a part of what it promises."""
    machine.require("mounts")
    machine.require("disk image")
    with ExitStack() as mounted:
        for name in ("beneath", "disk"):
            (directory / name).mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=4m", "none", directory / "beneath")
        mounted.callback(run, "umount", "-l", directory / "beneath")
        image = directory / "beneath" / "image"
        image.touch()
        os.truncate(image, 4 * FILE_BYTES)
        run("mkfs.ext4", "-q", "-O", "^has_journal", image)
        run("mount", "-o", "loop", image, directory / "disk")
        mounted.callback(run, "umount", "-l", directory / "disk")
        yield directory / "disk"


def test_a_map_without_a_descriptor_is_told_once_of_what_could_not_be_written(
    tmp_path: Path,
) -> None:
    with failing_disk(tmp_path) as disk:
        path = disk / "file"
        create_file(SYSTEM_FILES, path, FILE_BYTES, FILE_BYTES)
        kept = os.open(path, os.O_RDWR)
        files = [MappedFile(path, 0, FILE_BYTES, read_only=False) for _ in range(2)]
        files[0].data[:] = 1
        done = subprocess.run(["sync", "-f", disk], capture_output=True, check=False)
        assert done.returncode != 0, "the other program is told, too"
        with pytest.raises(OSError, match=r"space|Input/output"):
            os.fdatasync(kept)
        os.fdatasync(kept)
        later = os.open(path, os.O_RDWR)
        os.fdatasync(later)  # which is why no file may be opened again for a sync
        for file in files:
            with pytest.raises(OSError, match=r"space|Input/output"):
                file.flush()
            file.flush()
            file.close()
        os.close(kept)
        os.close(later)
