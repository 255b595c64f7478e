"""A batch on its way through a predicate, against what asking one by one gives."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.harness.patience import patience

from rocketray.errors import PredicateError
from rocketray.filters.predicate_run import FAILED, LATE, PredicateRun

KINDS = st.sampled_from(["yes", "no", "fails"])


class Clock:
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def asker(
    rows: list[str], clock: Clock, seconds: float = 0.0
) -> Callable[[int, int], npt.NDArray[np.bool_]]:
    def ask(first: int, stop: int) -> npt.NDArray[np.bool_]:
        clock.now_s += seconds
        if "fails" in rows[first:stop]:
            raise PredicateError(f"at {rows.index('fails', first)}")
        return np.array([row == "yes" for row in rows[first:stop]])

    return ask


def make(
    rows: list[str],
    clock: Clock,
    *,
    batch: bool = False,
    stop_on_error: bool = False,
    seconds: float = 0.0,
) -> PredicateRun:
    return PredicateRun(
        len(rows),
        asker(rows, clock, seconds),
        batch=batch,
        stop_on_error=stop_on_error,
        time_limit_s=1.0,
        clock_s=clock,
    )


@settings(max_examples=60)
@given(
    st.lists(KINDS, min_size=1, max_size=40),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.07, 0.4, 2.0]),
)
def test_runs_in_a_row_settle_every_message_as_it_deserves(
    rows: list[str], batch: bool, stop_on_error: bool, seconds: float
) -> None:
    clock = Clock()
    verdicts: list[int] = []
    while len(verdicts) < len(rows):
        run = make(
            rows[len(verdicts) :], clock, batch=batch, stop_on_error=stop_on_error, seconds=seconds
        )
        run.go()
        assert run.is_over
        settled = run.take().tolist()
        assert settled, "every run settles something"
        verdicts += settled
        if FAILED in settled and stop_on_error:
            assert settled.index(FAILED) == len(settled) - 1
            assert run.error == f"at {len(settled) - 1}"
            break
        assert run.is_slow == (len(verdicts) < len(rows))
    wanted = [{"yes": 1, "no": 0, "fails": FAILED}[row] for row in rows]
    assert verdicts == wanted[: len(verdicts)]


@pytest.mark.parametrize("batch", [False, True])
def test_a_call_that_does_not_come_back_is_late_and_its_answer_dropped(batch: bool) -> None:
    clock = Clock()
    inside, go_on = threading.Event(), threading.Event()

    def ask(first: int, stop: int) -> npt.NDArray[np.bool_]:
        if stop > 2:
            inside.set()
            go_on.wait(patience(30))
        return np.ones(stop - first, np.bool_)

    run = PredicateRun(5, ask, batch=batch, stop_on_error=False, time_limit_s=1.0, clock_s=clock)
    thread = threading.Thread(target=run.go)
    thread.start()
    assert inside.wait(patience(30))
    assert not run.is_overdue()
    clock.now_s = 1.5
    assert run.is_overdue()
    taken = run.take()
    go_on.set()
    thread.join(patience(30))
    assert taken.tolist() == ([LATE] * 5 if batch else [1, 1, LATE])
    assert run.take().tolist() == taken.tolist()
    assert not run.is_overdue()
