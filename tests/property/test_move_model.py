"""Moves of queues between two disks against lists: members of the group miss and repeat nothing.

The rules and what holds after each step are in support/models/moving_machine.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.harness.machines import run
from support.models.moving_machine import Moving

HISTORIES = 50


@pytest.mark.timeout(600)
def test_hundreds_of_steps(seed: int, amount: Callable[[int], int]) -> None:
    count = amount(HISTORIES)
    run(Moving, count, seed)
    assert Moving.moved > 0 or count < HISTORIES, "no queue was moved"
