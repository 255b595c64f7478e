"""The long runs: a part that fails fails the whole, and the kinds of machines are what they say."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.harness.long_run import verdict
from support.harness.patience import wait_until
from support.harness.rough import KINDS, Rough, main


def test_the_verdict_names_what_failed() -> None:
    assert verdict({"a": 0, "b": 5}, 120) == "make test-slow, 1 of 2 parts in 2 min: all passed"
    assert verdict({"a": 1, "b": 2}, 0).endswith("2 of 2 parts in 0 min: FAILED: a, b")


def test_a_machine_without_git_has_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as running:
        run = Rough(running)
        KINDS["few-rights"](run)
        programs = {path.name for path in Path(run.environ["PATH"]).iterdir()}
        assert "sh" in programs
        assert not [name for name in programs if name.startswith("git")]
    assert not Path(run.environ["PATH"]).exists()


def test_loops_end_with_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, command: list[str]) -> None:
            super().__init__(command)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    with ExitStack() as running:
        KINDS["one-processor"](Rough(running))
        assert [each.poll() for each in started] == [None]
        wait_until(lambda: len(os.sched_getaffinity(started[0].pid)) == 1)
    assert [each.poll() for each in started] == [-9]


def test_an_unknown_kind_is_refused_with_those_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["lops"]) == 2
    assert "there is no lops; there are: loops, one-processor, proxy" in capsys.readouterr().err
