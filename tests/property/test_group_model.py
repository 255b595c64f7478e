"""A group against lists: whatever is sent, delayed, failed, moved and restarted, all comes, in order.

The rules and what holds after each step are in support/models/group_machine.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from support.harness.machines import STEPS_EACH, run, run_histories
from support.models.group_machine import Group

HISTORIES = 50


def test_some_histories(seed: int, amount: Callable[[int], int]) -> None:
    run_histories(Group, seed, amount(10), STEPS_EACH)


@pytest.mark.timeout(600)
def test_hundreds_of_steps(seed: int, amount: Callable[[int], int]) -> None:
    run(Group, amount(HISTORIES), seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_more_steps(seed: int) -> None:
    histories = int(os.environ.get("ROCKETRAY_TEST_HISTORIES", str(20 * HISTORIES)))
    run(Group, histories, seed)
