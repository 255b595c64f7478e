"""The cause that explain names for each message and group is the one that a plain model knows.

Random histories on the testing kit: sends with tags and properties, delays, recalls, transactions,
members that come, go and crash, handlers that fail, retries, dead letters, moves, filters that
change at once or step by step, files that expire, coordinators that start again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.explain_model import STEPS, History

from rocketray.actors.explaining.explanation import Cause


def run_histories(count: int, seed: int, data: Path) -> Counter[Cause]:
    """So many histories; how often each cause was asked for."""
    causes = Counter[Cause]()
    for number in range(seed, seed + count):
        history = History(data / str(number), number)
        history.run(STEPS)
        causes += history.causes
    return causes


def test_a_history(seed: int, tmp_path: Path) -> None:
    History(tmp_path, seed).run(STEPS)


def test_explain_names_the_cause_that_the_model_knows(
    seed: int, tmp_path: Path, amount: Callable[[int], int]
) -> None:
    causes = run_histories(amount(3), seed + 1, tmp_path)  # the first one has a test of its own
    assert causes[Cause.DELIVERED] > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_explain_names_the_cause_that_the_model_knows_in_many_histories(
    seed: int, tmp_path: Path
) -> None:
    causes = run_histories(150, seed, tmp_path)
    assert causes.keys() >= {
        Cause.DELIVERED, Cause.ON_ITS_WAY, Cause.SKIPPED, Cause.BEFORE_START, Cause.NO_CONSUMER,
        Cause.TAG_MISMATCH, Cause.SQL_NULL, Cause.SQL_FALSE, Cause.WAITS_FOR_RETRY,
        Cause.DEAD_LETTER, Cause.DELAYED, Cause.RECALLED, Cause.HALF_MESSAGE, Cause.ROLLED_BACK,
    }  # fmt: skip
