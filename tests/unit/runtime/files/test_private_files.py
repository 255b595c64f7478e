"""What no other user may read or exchange is made so, whatever stands there already."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.harness.machine import needs

from rocketray.runtime.files.private_files import (
    make_directory,
    make_private_directory,
    open_to_others,
    write_secret,
)

OTHER_UID = 65534


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_directory_is_made_for_its_user_alone_and_taken_again(tmp_path: Path) -> None:
    assert make_private_directory(tmp_path / "own")
    assert mode(tmp_path / "own") == 0o700
    assert make_private_directory(tmp_path / "own")


@pytest.mark.parametrize("bits", [0o710, 0o701, 0o777])
def test_a_directory_that_others_can_enter_is_none_of_ours(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "wide"
    path.mkdir()
    path.chmod(bits)
    assert not make_private_directory(path)
    assert mode(path) == bits


def test_neither_a_link_nor_a_file_is_a_directory_of_ours(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()
    assert not make_private_directory(tmp_path / "link")
    assert not make_private_directory(tmp_path / "file")


@needs("root")
def test_what_another_user_made_is_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "squatted"
    path.mkdir(mode=0o700)
    os.chown(path, OTHER_UID, OTHER_UID)
    assert not make_private_directory(path)


def test_a_secret_replaces_what_was_there_and_is_never_readable(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "token", tmp_path / "elsewhere"
    path.symlink_to(elsewhere)
    (tmp_path / f"token.{os.getpid()}.tmp").touch(mode=0o666)
    write_secret(path, "one")
    assert (path.read_text(), mode(path), path.is_symlink()) == ("one", 0o600, False)
    assert not elsewhere.exists()
    path.chmod(0o644)
    assert open_to_others(path) == 0o044
    write_secret(path, "two")
    assert (path.read_text(), open_to_others(path)) == ("two", 0)
    assert [each.name for each in tmp_path.iterdir()] == ["token"]
    assert open_to_others(tmp_path / "none") == 0


@pytest.mark.parametrize("bits", [0o700, 0o750, 0o777])
def test_a_directory_gets_the_mode_that_was_asked_for_and_keeps_it(
    tmp_path: Path, bits: int
) -> None:
    path = tmp_path / "above" / "data"
    assert make_directory(path, bits)
    assert mode(path) == bits
    assert not make_directory(path, 0o711)
    assert mode(path) == bits
