"""The cause that explain names for each message and group is the one that a plain model knows.

Random histories on the testing kit: sends with tags and properties, delays, recalls, transactions,
members that come, go and crash, handlers that fail, retries, dead letters, moves, filters that
change at once or step by step, files that expire, coordinators that start again.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.models.explain_model import STEPS, History

from rocketray.services.explaining.cause import Cause


@pytest.mark.proves("groups", "`explain` names the right cause in random histories")
def test_a_history(seed: int, tmp_path: Path) -> None:
    History(tmp_path, seed).run(STEPS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_explain_names_the_cause_that_the_model_knows_in_many_histories(
    seed: int, tmp_path: Path
) -> None:
    causes = Counter[Cause]()
    for number in range(150):
        history = History(tmp_path / str(number), seed + number)
        history.run(STEPS)
        causes += history.causes
    assert causes.keys() >= {
        Cause.DELIVERED, Cause.ON_ITS_WAY, Cause.SKIPPED, Cause.BEFORE_START, Cause.NO_CONSUMER,
        Cause.TAG_MISMATCH, Cause.SQL_NULL, Cause.SQL_FALSE, Cause.WAITS_FOR_RETRY,
        Cause.DEAD_LETTER, Cause.DELAYED, Cause.RECALLED, Cause.HALF_MESSAGE, Cause.ROLLED_BACK,
    }  # fmt: skip
