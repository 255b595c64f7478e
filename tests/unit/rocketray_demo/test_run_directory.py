from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketray.errors import ConfigError
from rocketray_demo.run_directory import open_run


def test_each_run_has_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = open_run(limit=5)
    assert run.path.parent == tmp_path / "runs"
    assert not run.is_resumed
    assert json.loads((run.path / "demo.json").read_text()) == {"version": 1, "limit": 5}


def test_a_run_is_resumed_with_its_limit(tmp_path: Path) -> None:
    open_run(limit=5, data=tmp_path)
    run = open_run(resume=tmp_path, data=tmp_path, limit=5)
    assert (run.path, run.limit, run.is_resumed) == (tmp_path, 5, True)


def test_what_cannot_be_begun_or_resumed_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run of the demo"):
        open_run(resume=tmp_path)
    open_run(data=tmp_path)
    with pytest.raises(ConfigError, match=f"--resume {tmp_path}"):
        open_run(data=tmp_path)
    with pytest.raises(ConfigError, match="started with --limit none"):
        open_run(resume=tmp_path, limit=5)
    with pytest.raises(ConfigError, match="leave --data out"):
        open_run(resume=tmp_path, data=tmp_path / "other")
