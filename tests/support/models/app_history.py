"""Apps of one group on a node in this process: how they are made, moved and brought to an end.

The state machines of app_machine.py build on this.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from hypothesis.stateful import RuleBasedStateMachine
from support.harness.quiet import quiet_log
from support.models.retry_model import RetryModel
from support.models.stepped_app import TOPIC, Handler, SteppedApp, SteppedLoop, without_waiting

from rocketray.base.system_topics import SCHEDULE_TOPIC
from rocketray.broker.retries.retry_records import dead_letter_topic, retry_topic
from rocketray.testing import Broker
from rocketray.topology.values.failure_rules import FailureRules

GROUP = "g"
QUEUES = 2
LADDER_S = 7_300  # longer than the longest pause between two attempts
SYSTEM_QUEUES = (
    *((SCHEDULE_TOPIC, level) for level in (2, 3, 4)),
    (retry_topic(GROUP), 0),
    (dead_letter_topic(GROUP), 0),
)
_MEMORY = Path("/dev/shm")  # the node syncs its files; that is not what is tested here
_T = TypeVar("_T")


class AppHistory(RuleBasedStateMachine):
    """Apps of one group, with the rules for failures that :meth:`failure_rules` gives."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.exits = ExitStack()
        self.exits.enter_context(without_waiting())
        self.exits.enter_context(quiet_log())  # it tells of each failure
        self.directory = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
        self.exits.callback(shutil.rmtree, self.directory)
        self.broker = Broker(self.directory)
        self.loop = SteppedLoop(self.broker)
        self.exits.callback(self.close)
        self.broker.topics.ensure(TOPIC, QUEUES)
        self.producer = self.broker.producer()
        self.apps: list[SteppedApp] = []
        self.names = itertools.count(1)
        self.numbers = itertools.count(1)
        self.restarted = False
        self.model = RetryModel(self.broker, QUEUES, self.failure_rules(0), self.heard)

    def failure_rules(self, number: int) -> FailureRules:
        """One of several sets of rules."""
        raise NotImplementedError

    def heal(self) -> None:
        """Bring everything to its end, and compare."""
        raise NotImplementedError

    def join(self, handlers: int) -> None:
        """Start an app."""
        name = f"m{next(self.names)}"
        self.apps.append(self.do(self._made(name, handlers)))
        self.do(self.apps[-1].step())

    def settle(self) -> None:
        """Everybody hears of what is, and reads what there is."""
        for _ in range(4):
            self.advance(1)
            for app in self.apps:
                self.do(app.step())

    def pass_long(self, seconds: float) -> None:
        """All is quiet for long."""
        self.settle()
        self.advance(20)
        self.advance(seconds)

    def calm_down(self) -> None:
        """Let all be well again."""
        self.advance(60)
        if not self.apps:
            self.join(1)
        for app in self.apps:
            if not app.road.is_set():
                app.road.set()
                self.do(app.flush())
        for place in self.places():
            self.broker.faults.fail_appends(0, *place)
            self.broker.faults.lose_acks(0, *place)
        self.settle()

    def succeed(self, app: SteppedApp) -> None:
        """All handlers of an app finish what there is."""
        for handler in app.handlers:
            if handler.hand is not None:
                handler.finish()
        for handler in app.handlers:
            while self.do(handler.begin(as_list=True)):
                handler.finish()

    def handlers(self, *, busy: bool) -> list[Handler]:
        """All that have something in hand, or nothing."""
        return [one for app in self.apps for one in app.handlers if (one.hand is not None) == busy]

    def advance(self, seconds: float) -> None:
        """Let time pass; what comes late has a reason."""
        if any(self.broker._stepped.faults[place].failing for place in self.places()):
            self.broker.clock.advance(seconds=seconds)
            self.model.tolerate()
        else:
            self.broker.clock.advance(seconds=seconds)
        self.model.check_times()

    def places(self) -> list[tuple[str, int]]:
        """The queues that are there of those where appends may fail."""
        topics = self.broker.topics.all()
        return [place for place in SYSTEM_QUEUES if place[0] in topics]

    def heard(self, number: int) -> int:
        """The group's offset as the coordinator has it."""
        offsets = self.broker.node.state.registry.offsets
        if number == QUEUES:
            return offsets.get(GROUP, retry_topic(GROUP), 0)
        return offsets.get(GROUP, TOPIC, number)

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Have the loop do something to its end."""
        asyncio.set_event_loop(self.loop)
        done = self.loop.run_until_complete(work)
        if self.loop.errors:
            raise self.loop.errors.pop(0)
        return done

    async def _made(self, name: str, handlers: int) -> SteppedApp:
        return SteppedApp(
            self.broker,
            self.model,
            name,
            self.model.filter.subscription,
            rules=self.model.rules,
            handlers=handlers,
        )

    async def failed(self, handler: Handler, number: int | None) -> None:
        assert handler.hand is not None
        feed, delivery, start, end = handler.hand
        is_named = number is not None and end - start > 1 and not delivery.is_withdrawn
        await handler.fail(number % (end - start) if is_named and number is not None else None)
        await feed.app.flush()

    def teardown(self) -> None:
        with self.exits:
            if sys.exception() is None:
                self.heal()
            for app in self.apps:
                self.do(app.crash())

    def close(self) -> None:
        self.producer.close()
        self.broker.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
