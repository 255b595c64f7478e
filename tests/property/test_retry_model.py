"""Messages that fail, against lists: they come again up the ladder, or are dead letters, and no fewer.

The rules are in support/models/app_machine.py, what holds in support/models/retry_model.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from support.harness.machines import run
from support.models.app_history import GROUP
from support.models.app_machine import AppMachine

from rocketray.broker.retries.retry_records import dead_letter_topic
from rocketray.topology.values.failure_rules import FailureRules

HISTORIES = 10


class Retries(AppMachine):
    """An agent as it is without options, but for the number of attempts."""

    def failure_rules(self, number: int) -> FailureRules:
        return FailureRules(GROUP, (0, 1, 2, 16)[number], dead_letter_topic(GROUP))


@pytest.mark.proves(
    "delivery",
    "Every message is delivered at least once in random histories with failures",
)
@pytest.mark.timeout(600)
def test_hundreds_of_steps(seed: int, amount: Callable[[int], int]) -> None:
    run(Retries, amount(HISTORIES), seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_more_steps(seed: int) -> None:
    histories = int(os.environ.get("ROCKETRAY_TEST_HISTORIES", str(10 * HISTORIES)))
    run(Retries, histories, seed)
