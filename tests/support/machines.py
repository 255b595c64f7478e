"""Runs a state machine until it has done a number of steps."""

from __future__ import annotations

from typing import Any

import hypothesis
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

__all__ = ["run"]

STEPS_EACH = 100


def run(machine: Any, steps: int, seed: int) -> None:
    """Have *machine*, which counts its ``steps``, do at least that many.

    *seed* is that of the first histories; a failure prints what repeats it.
    """

    class Run(machine):  # type: ignore[misc]  # any state machine
        steps = 0

    while Run.steps < steps:
        run_state_machine_as_test(
            hypothesis.seed(seed)(Run),
            settings=settings(
                max_examples=10,
                stateful_step_count=STEPS_EACH,
                deadline=None,
                database=None,  # a seed repeats a run, whatever ran before
                print_blob=True,
                suppress_health_check=list(hypothesis.HealthCheck),
            ),
        )
        seed += 1
