"""An ordered agent, against lists: each queue in its order, also where handlers fail.

The rules are in support/models/app_machine.py, what holds in support/models/retry_model.py. In addition here, a
queue whose messages always fail does not keep the others from their end.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from support.harness.machines import run
from support.models.app_history import GROUP, QUEUES
from support.models.app_machine import AppMachine
from support.models.stepped_app import Handler

from rocketray.broker.retries.retry_records import dead_letter_topic
from rocketray.topology.values.failure_rules import FailureRules

HISTORIES = 10


class Ordered(AppMachine):
    """An agent with ``ordered=True``, without a limit or with one."""

    def failure_rules(self, number: int) -> FailureRules:
        attempts, suspend_s = ((None, 1.0), (0, 1.0), (2, 0.5), (3, 30.0))[number]
        return FailureRules(
            GROUP, attempts, dead_letter_topic(GROUP), is_ordered=True, suspend_s=suspend_s
        )

    def heal(self) -> None:
        self.calm_down()
        rounds = 6 + sum(len(queue.sent) for queue in self.model.queues)  # each gets on by one
        while rounds and self.is_behind():
            rounds -= 1
            self.pass_time(1)
            for app in self.apps:
                self.do(app.step())
                for handler in app.handlers:
                    self.go_on(handler)
                app.commit()
        assert not self.is_behind()
        super().heal()

    def is_behind(self) -> bool:
        """Some queue but the first, on which handlers fail, is not finished."""
        heard = map(self.heard, range(1, QUEUES))
        return list(heard) != [len(self.model.queues[number].sent) for number in range(1, QUEUES)]

    def go_on(self, handler: Handler) -> None:
        """A handler that fails on queue 0, and on nothing else."""
        while handler.hand is not None or self.do(handler.begin(as_list=False)):
            assert handler.hand is not None
            feed, delivery, _, _ = handler.hand
            if self.model.queue_of(feed, delivery.queue_id) == 0:
                self.do(self.failed(handler, None))
            else:
                handler.finish()


@pytest.mark.timeout(600)
def test_hundreds_of_steps(seed: int, amount: Callable[[int], int]) -> None:
    run(Ordered, amount(HISTORIES), seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_more_steps(seed: int) -> None:
    histories = int(os.environ.get("ROCKETRAY_TEST_HISTORIES", str(10 * HISTORIES)))
    run(Ordered, histories, seed)
