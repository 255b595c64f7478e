"""A seed draws the same values, whichever modules a run has imported."""

from __future__ import annotations

import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st


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
