"""Small files are replaced whole, and are on disk where that is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketray.base.whole_file import replace_file, write_beside


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_and_its_directory_are_made_and_replaced(tmp_path: Path, *, sync: bool) -> None:
    path = tmp_path / "new" / "file"
    for content in (b"first, and longer", b"second", b""):
        replace_file(path, content, sync=sync)
        assert path.read_bytes() == content
        assert [*path.parent.iterdir()] == [path]


def test_content_is_synced_before_it_takes_the_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    synced: list[tuple[str, bytes]] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), path.read_bytes()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    replace_file(path, b"new")
    beside = f"{path}.{os.getpid()}.tmp"
    assert synced == [(beside, b"old"), (str(tmp_path), b"new")]
    replace_file(path, b"newer", sync=False)
    assert len(synced) == 2


def test_what_cannot_be_written_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")
    (tmp_path / f"file.{os.getpid()}.tmp").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    with pytest.raises(IsADirectoryError):
        write_beside(path, b"new")
