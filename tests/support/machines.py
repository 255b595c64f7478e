"""Runs a state machine with a seed: for a number of histories, or until it has done so many steps."""

from __future__ import annotations

from typing import Any

import hypothesis
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from support.open_files import close_unreachable_files

__all__ = ["STEPS_EACH", "run", "run_histories"]

STEPS_EACH = 100


def run(machine: Any, steps: int, seed: int) -> None:
    """Have *machine*, which counts its ``steps``, do at least that many.

    *seed* is that of the first histories; a failure prints what repeats it.
    """

    closing = _closing(machine)
    closing.steps = 0
    while closing.steps < steps:
        before = closing.steps
        try:
            _try(closing, seed, 10, STEPS_EACH)
        except BaseException as error:
            error.add_note(f"--seed={seed} begins with the histories that failed")
            raise
        assert closing.steps > before, "a machine that counts no steps never ends"
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
