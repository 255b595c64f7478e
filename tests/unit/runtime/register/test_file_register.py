"""A register of files: whole values, durable names, and nothing created in a wrong place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rocketray.errors import ConfigError, RegisterUnavailableError, StoreError
from rocketray.runtime.register.file_register import FileRegister


@pytest.fixture
def register(tmp_path: Path) -> FileRegister:
    (tmp_path / "register").mkdir()
    return FileRegister(tmp_path / "register")


def test_a_value_is_synced_before_it_has_its_name_and_the_name_after(
    register: FileRegister, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "register/a/b"
    synced: list[tuple[str, bool]] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((name.suffix or name.name, path.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    register.create("a/b", b"x")
    assert synced == [("register", False), (".tmp", False), ("a", True)]
    assert [*path.parent.iterdir()] == [path]


def test_a_name_that_is_there_already_is_synced_too(
    register: FileRegister, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier call may have failed at that, and its caller takes the value for saved now."""
    register.create("a/b", b"x")
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink())
    )
    assert not register.create("a/b", b"x")
    assert synced[-1] == tmp_path / "register/a"


def test_a_failed_write_leaves_no_key(
    register: FileRegister, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    register.create("a/a", b"x")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RegisterUnavailableError, match=r"file:///.*No space left"):
        register.create("a/b", b"x")
    assert register.names("") == ["a/a"]
    assert [path.name for path in (tmp_path / "register/a").iterdir()] == ["a"]


def test_what_a_killed_process_left_is_no_key_and_is_removed_after_an_hour(
    register: FileRegister, tmp_path: Path
) -> None:
    register.create("a/b", b"x")
    old, new = (tmp_path / "register/a" / name for name in (".c.1.tmp", ".d.2.tmp"))
    for path in (old, new):
        path.write_bytes(b"half")
    long_ago = new.stat().st_mtime - 3700
    os.utime(old, (long_ago, long_ago))
    assert register.names("") == register.names("a") == ["a/b"]
    register.create("a/c", b"y")
    assert not old.exists()
    assert new.exists()


def test_a_link_whose_answer_was_lost_is_no_other_writers(
    register: FileRegister, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Path.hardlink_to

    def repeated(self: Path, target: Path) -> None:
        link(self, target)
        link(self, target)

    monkeypatch.setattr(Path, "hardlink_to", repeated)
    assert register.create("a/b", b"x")
    assert not register.create("a/b", b"x")


def test_a_missing_directory_is_not_created(register: FileRegister, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not exist; mount .*mkdir -p"):
        FileRegister(tmp_path / "none")
    register.create("a/b", b"x")
    shutil.rmtree(tmp_path / "register")
    for call in (
        lambda: register.create("a/c", b"x"),
        lambda: register.create("c", b"x"),
        lambda: register.read("a/b"),
        lambda: register.names("a"),
    ):
        with pytest.raises(RegisterUnavailableError, match="No such file"):
            call()
    assert not (tmp_path / "register").exists()


def test_a_file_that_is_too_large_is_none_of_the_registers(
    register: FileRegister, tmp_path: Path
) -> None:
    (tmp_path / "register/a").write_bytes(bytes(2_000_000))
    with pytest.raises(StoreError, match="more than the 1048576"):
        register.read("a")
