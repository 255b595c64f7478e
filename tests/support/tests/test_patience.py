"""The patience of the tests: a wait ends when its condition holds, and fails with what it saw."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from support.harness import patience as module
from support.harness.patience import (
    patience,
    settle_patience,
    until,
    wait_until,
    wait_until_answered,
)


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


def test_a_wait_that_is_over_shows_what_it_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETRAY_TEST_PATIENCE", "1")
    seen = [1, 2]
    for wait in (wait_until, lambda *given, **options: asyncio.run(until(*given, **options))):
        with pytest.raises(AssertionError, match=r"^after 0 s: .*\[1, 2\]"):
            wait(lambda: len(seen) == 3, within_s=0.01)


def test_a_wait_looks_once_more_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that stood still meanwhile."""
    now_s = 0.0

    def slept(_: float) -> None:
        nonlocal now_s
        now_s += 1000.0

    clock = SimpleNamespace(monotonic=lambda: now_s, sleep=slept)
    monkeypatch.setattr(module, "time", clock)
    assert wait_until(lambda: now_s > 0)


def test_an_answer_is_waited_for_and_the_last_error_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROCKETRAY_TEST_PATIENCE", "1")
    found = iter("ab7")
    assert wait_until_answered(lambda: int(next(found)), ValueError) == 7
    with pytest.raises(AssertionError, match=r"after 0 s: ValueError.*'x'"):
        wait_until_answered(lambda: int("x"), ValueError, KeyError, within_s=0.01)
    with pytest.raises(ValueError, match="x"):
        wait_until_answered(lambda: int("x"), KeyError)
