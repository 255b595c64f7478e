"""The simulator (support/sim): a whole node under power failures, kills and faults, by seeds.

``make sim`` runs as many seeds as wanted. Here runs a share of them, for a fixed time, and every
seed that ever failed; ``make test-slow`` also plants each bug of support/sim/mutants.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from support.amounts import ALL

SECONDS = 1200 if ALL else 90
MUTANT_SEEDS = 2_000
"""In so many seeds each planted bug has to be found."""


def simulate(*options: object, **environment: str) -> str:
    """The output of the simulator, which has to exit with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "support.sim", *map(str, options)],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long(reason="a share of the simulator is a time, not a number of seeds")
@pytest.mark.timeout(2 * SECONDS + 300)
def test_every_promise_holds_for_some_time(seed: int) -> None:
    said = simulate("--first", seed * 1_000, "--seconds", SECONDS, "--workers", 2 if ALL else 1)
    print(said)
    assert re.search(r"[1-9]\d* seeds in .*\nno failure", said)


def test_a_seed(seed: int) -> None:
    """The seeds that failed in the past, and one more."""
    simulate("--first", seed, "--count", 1)


def test_a_seed_repeats_everything(seed: int) -> None:
    digests = {simulate("--first", seed, "--count", 1, "--digests", PYTHONHASHSEED=hash_seed)
               .splitlines()[0] for hash_seed in ("1", "2")}  # fmt: skip
    assert len(digests) == 1
    assert re.fullmatch(rf"seed {seed}: [0-9a-f]{{64}}", digests.pop())


@pytest.mark.slow
@pytest.mark.timeout(8 * 3600)
def test_each_planted_bug_is_found() -> None:
    print(simulate("--mutants", "--count", MUTANT_SEEDS))
