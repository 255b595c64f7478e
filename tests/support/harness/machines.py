"""Runs a state machine with a seed: for many histories, or for some that are shorter."""

from __future__ import annotations

import sys
from typing import Any

import hypothesis
from hypothesis import settings
from hypothesis.errors import StopTest, UnsatisfiedAssumption
from hypothesis.stateful import run_state_machine_as_test
from support.harness.open_files import close_unreachable_files

STEPS_EACH = 100
_HISTORIES_EACH = 10
_FEWEST = 4  # hypothesis begins each seed with two histories of the smallest choices
_GIVEN_UP = StopTest, UnsatisfiedAssumption  # by hypothesis, which tries another history then


class _Done(KeyboardInterrupt):
    """All histories are done: an interruption, which hypothesis takes for no failure."""


def run(machine: Any, histories: int, seed: int) -> None:
    """Try *machine* with so many *histories*, but at least four: ten of each seed, from *seed* on.

    Fewer histories are the first of more: what a seed finds in some of them, it finds in all. A
    failure prints what repeats it.
    """

    histories = max(_FEWEST, histories)

    class Counting(machine):  # type: ignore[misc]  # any state machine
        begun = 0
        passed = 0

        def __init__(self) -> None:
            # One that failed has begun and not passed: hypothesis repeats it, to tell how.
            if Counting.passed == Counting.begun >= histories:
                raise _Done
            super().__init__()
            Counting.begun += 1

        def teardown(self) -> None:
            error = sys.exception()
            super().teardown()
            Counting.passed += error is None
            Counting.begun -= isinstance(error, _GIVEN_UP)

    closing = _closing(Counting)
    while (before := Counting.passed) < histories:
        try:
            _try(closing, seed, _HISTORIES_EACH, STEPS_EACH)
        except _Done:
            return
        except BaseException as error:
            error.add_note(f"--seed={seed} begins with the histories that failed")
            raise
        assert Counting.passed > before, "a machine whose histories are all too long never ends"
        seed += 1


def run_histories(machine: Any, seed: int, count: int, steps_each: int) -> None:
    """Try *machine* with *count* histories of up to *steps_each* steps."""
    _try(_closing(machine), seed, count, steps_each)


def _closing(machine: Any) -> Any:
    """*machine*, with the files closed that a history leaves in cycles."""

    class Closing(machine):  # type: ignore[misc]  # any state machine
        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                close_unreachable_files()

    return Closing


def _try(machine: Any, seed: int, count: int, steps_each: int) -> None:
    run_state_machine_as_test(
        hypothesis.seed(seed)(machine),
        settings=settings(
            max_examples=count,
            stateful_step_count=steps_each,
            deadline=None,
            database=None,  # a seed repeats a run, whatever ran before
            print_blob=True,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )
