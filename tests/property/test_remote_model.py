"""Members on other nodes against lists: whatever is lost on its way, all comes, in order.

The rules and what holds after each step are in support/models/remote_machine.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from support.harness.machines import run
from support.models.remote_machine import Remote

HISTORIES = 50


@pytest.mark.proves("groups", "A gateway that dies loses no message and delivers none twice")
@pytest.mark.timeout(600)
def test_hundreds_of_steps(seed: int, amount: Callable[[int], int]) -> None:
    run(Remote, amount(HISTORIES), seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_more_steps(seed: int) -> None:
    histories = int(os.environ.get("ROCKETRAY_TEST_HISTORIES", str(4 * HISTORIES)))
    run(Remote, histories, seed)
