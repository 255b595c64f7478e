"""``rocketray disk``: a script knows the UUID of a data directory before its Ray and node start."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from support.command_server import run_here

from rocketray.actors.files.home import settle_identity
from rocketray.actors.files.paths import identity_file


def test_a_disk_is_named_by_its_directory_which_is_made_private(tmp_path: Path) -> None:
    data = tmp_path / "srv" / "data"
    done = run_here("disk", "--data", data)
    assert (done.code, done.err) == (0, "")
    assert done.out == settle_identity(data) + "\n"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    again = run_here("disk", "--data", data, "--json")
    assert again.lines() == [{"data": str(data), "disk": done.out.strip()}]


def test_a_script_finds_the_disk_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETRAY_DATA", str(tmp_path))
    assert run_here("disk").out == run_here("disk", "--data", tmp_path).out


def test_a_damaged_identity_has_no_label(tmp_path: Path) -> None:
    identity_file(tmp_path).write_text("{")
    done = run_here("disk", "--data", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"rocketray: {identity_file(tmp_path)}: damaged")
    assert identity_file(tmp_path).read_text() == "{"
