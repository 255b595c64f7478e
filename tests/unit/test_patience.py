"""The patience of the tests: a wait ends when its condition holds, and fails with what it saw."""

from __future__ import annotations

import pytest
from support import patience as module
from support.patience import patience, settle_patience, wait_until


def test_a_wait_returns_the_first_true_answer() -> None:
    answers = iter([0, "", 7])
    assert wait_until(lambda: next(answers)) == 7


def test_a_wait_that_is_over_says_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETRAY_TEST_PATIENCE", "1")
    with pytest.raises(AssertionError, match=r"^after 0 s: only 3$"):
        wait_until(lambda: False, lambda: f"only {3}", within_s=0.01)


def test_a_run_measures_its_factor_once_and_hands_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETRAY_TEST_PATIENCE", raising=False)
    measured = iter([3.0])
    monkeypatch.setattr(module, "_measured", lambda: next(measured))
    assert (settle_patience(), settle_patience(), patience(10)) == (3.0, 3.0, 30.0)
