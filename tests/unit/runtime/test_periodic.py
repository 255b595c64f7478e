"""Threads of actors that do something again and again."""

from __future__ import annotations

import threading

import pytest
from support.harness.patience import patience

from rocketray.runtime.periodic import start_periodic_task


def test_a_task_that_went_wrong_is_told_and_done_again(caplog: pytest.LogCaptureFixture) -> None:
    stop, has_gone_on = threading.Event(), threading.Event()
    done: list[int] = []

    def work() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise KeyError("what nobody thought of")
        has_gone_on.set()

    thread = start_periodic_task("sweeping", 0.001, stop, work)
    assert has_gone_on.wait(patience(30)), "it ended at the error"
    stop.set()
    thread.join(patience(30))
    assert not thread.is_alive()
    assert "sweeping failed; trying again in 0.001 s" in caplog.text
    assert "what nobody thought of" in caplog.text
