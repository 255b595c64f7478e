"""The simulator (support/sim): a whole node under power failures, kills and faults, by seeds.

``make sim`` runs as many seeds as wanted. Here run a few new ones and every seed that ever failed;
``make test-slow`` runs more, and plants each bug of support/sim/mutants.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from support.harness.amounts import ALL

pytestmark = pytest.mark.proves(
    "durability",
    "All of this together, with groups, retries, delays, transactions, compaction, "
    "retention and queries, whatever fails",
)

NEW_SEEDS = 2_000 if ALL else 50
"""A number, not a time: a slow machine does as much as a quick one."""
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


@pytest.mark.timeout(3600)
def test_every_promise_holds_with_new_seeds(seed: int) -> None:
    first = seed * NEW_SEEDS
    said = simulate("--first", first, "--count", NEW_SEEDS, "--workers", 2 if ALL else 1)
    print(said)
    assert re.search(rf"{NEW_SEEDS} seeds in .*\nno failure", said)


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
