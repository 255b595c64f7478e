"""A run has one seed, in each of its processes, and it draws the same values, whatever is imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from support.harness.source_tree import ROOT
from support.programs import seed_of_a_process


def drawn() -> list[int]:
    values: list[int] = []

    @hypothesis.settings(max_examples=200, database=None)
    @hypothesis.given(st.integers())
    def draw(value: int) -> None:
        values.append(value)

    draw()
    return values


def test_a_seed_draws_the_same_whatever_was_imported_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn()
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "odd_constants.py").write_text(f"ODD = {[7**power for power in range(4, 60)]}")
    __import__("odd_constants")
    try:
        assert drawn() == before
    finally:
        del sys.modules["odd_constants"]


def test_the_seed_that_a_run_prints_is_that_of_its_processes(tmp_path: Path) -> None:
    told = tmp_path / "seed"
    options = "-n1", "-p", "no:cacheprovider", "--override-ini=addopts=", "--rootdir", str(ROOT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, seed_of_a_process.__file__],
        env={**os.environ, seed_of_a_process.TOLD_IN: str(told)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"--seed=(\d+)", done.stdout) == [told.read_text()]
