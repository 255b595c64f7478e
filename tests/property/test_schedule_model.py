"""The schedule against lists: random delays, clocks that are set, crashes between any two steps.

Checked after every step:
  never early      the clock went on by the delay since its lowest reading after the send
  never recalled   what was recalled does not arrive
  once             nothing arrives twice; after a power failure at most what was under way
  in order         each step brings a queue its messages by due time
And at the end, when the longest delay has gone by: every message with a delay has arrived, however
the clock was set; those with a time when the clock comes there.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.harness.amounts import examples
from support.nodes.schedules import CrashError, Sent, Waiting

from rocketray.broker.retries.deliveries import Place
from rocketray.errors import ShardUnavailableError

EXAMPLES = int(os.environ.get("ROCKETRAY_TEST_SCHEDULES", "30"))
MINUTE = 60_000
DAY = 24 * 60 * MINUTE
TARGETS = [("trade", 0), ("trade", 1), ("other", 0)]
SPANS = (1, 300, 999, 1_000, 5_000, 30_000, MINUTE)


class Run:
    """One random run, and what is known of each message."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.chance = chance
        self.waiting = Waiting(directory, body=bytes(chance.choice([4, 2000, 4000])))
        self.sent: dict[str, Sent] = {}
        self.recalled: set[str] = set()
        self.may_repeat: set[str] = set()
        self.was_set_back = False
        self.rolled = 0
        self.shut: set[Place] = set()
        self.waiting.before = self._before

    def go(self, steps: int) -> None:
        actions = [self.send] * 5 + [self.wait] * 3 + [self.step] * 4
        actions += [
            self.set_clock,
            self.restart,
            self.crash,
            self.recall,
            self.shut_or_open,
            self.roll,
            self.roll,
        ]
        for _ in range(steps):
            self.chance.choice(actions)()
        self.shut.clear()
        for _ in range(4):  # a held target is asked again after a minute at most
            self.waiting.clock.now_ms += 2 * MINUTE
            self.step()
        spans = {one.key for one in self.sent.values() if one.is_span}
        assert spans - self.recalled <= set(self.waiting.all_keys()), "too late"
        self.waiting.clock.now_ms += 40 * DAY  # times wait for a clock that was set back
        self.step()
        arrived = Counter(self.waiting.all_keys())
        assert set(arrived) == self.sent.keys() - self.recalled
        assert {key for key, count in arrived.items() if count > 1} <= self.may_repeat
        assert len(self.waiting.schedule) == 0

    def send(self) -> None:
        topic, queue_id = self.chance.choice(TARGETS)
        for _ in range(self.chance.choice([1, 1, 5])):
            match self.chance.randrange(3):
                case 0:
                    one = self.waiting.send_level(self.chance.choice([1, 2, 5]), topic, queue_id)
                case 1:
                    one = self.waiting.send_after(self.chance.choice(SPANS), topic, queue_id)
                case _:
                    at = self.waiting.clock.now_ms + self.chance.choice(SPANS)
                    one = self.waiting.send_at(at, topic, queue_id)
            self.sent[one.key] = one

    def wait(self) -> None:
        self.waiting.clock.now_ms += self.chance.choice(SPANS)

    def set_clock(self) -> None:
        by = self.chance.choice([-DAY, -MINUTE, -5_000, -900, 5_000, MINUTE])
        self.waiting.clock.now_ms += by
        if by < 0:
            self.was_set_back = True
            for one in self.sent.values():
                one.lowest_ms = min(one.lowest_ms, self.waiting.clock.now_ms)

    def step(self) -> None:
        before = {target: len(keys) for target, keys in self.waiting.arrived.items()}
        wakeup_ms = self.waiting.step()
        self._check(before)
        assert wakeup_ms > self.waiting.clock.now_ms

    def crash(self) -> None:
        """End the process at a random place of a step; sometimes the power goes too."""
        before = {target: len(keys) for target, keys in self.waiting.arrived.items()}
        left = self.chance.randrange(4)
        takes_power = self.chance.random() < 0.3

        def end(what: str) -> None:
            nonlocal left
            self._before(what)
            left -= 1
            if left < 0:
                raise CrashError

        self.waiting.before = end
        try:
            self.waiting.step()
        except CrashError:
            if takes_power:
                self.may_repeat |= self.waiting.keys_under_way()  # where they are by now
                self.waiting.under_way = {}
        self.waiting.before = self._before
        self._check(before)
        self.waiting.start()

    def restart(self) -> None:
        self.waiting.schedule.close()
        self.waiting.start()

    def recall(self) -> None:
        if self.sent:
            one = self.chance.choice(list(self.sent.values()))
            is_recalled = self.waiting.schedule.recall(one.place, one.offset, one.key)
            arrived = self.waiting.all_keys()
            if is_recalled:
                assert one.key not in self.recalled
                assert one.key not in arrived or one.key in self.may_repeat
                self.recalled |= {one.key} - set(arrived)
            else:
                assert one.key in self.recalled or one.key in arrived

    def roll(self) -> None:
        """Store what waits in old files again, which a crash may interrupt, and let files go."""
        left = self.chance.choice([0, 1, 99])

        def end(_what: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise CrashError

        self.waiting.before = end
        try:
            self.rolled += self.waiting.schedule.roll()
            self.waiting.expire()
        except CrashError:
            self.waiting.start()
        self.waiting.before = self._before

    def shut_or_open(self) -> None:
        self.shut ^= {self.chance.choice(TARGETS)}

    def _before(self, what: str) -> None:
        if what in {f"forward {topic}/{queue_id}" for topic, queue_id in self.shut}:
            raise ShardUnavailableError(what, "it is away")

    def _check(self, before: dict[Place, int]) -> None:
        now = self.waiting.clock.now_ms
        counts = Counter(self.waiting.all_keys())
        for target, keys in self.waiting.arrived.items():
            new = [self.sent[key] for key in keys[before.get(target, 0) :]]
            for one in new:
                assert now >= min(one.due_ms, one.lowest_ms + one.delay_ms), "early"
                assert one.key not in self.recalled, "after its recall"
                assert counts[one.key] == 1 or one.key in self.may_repeat, "twice"
            dues = [one.due_ms for one in new if one.key not in self.may_repeat]
            assert self.was_set_back or dues == sorted(dues), "out of order"


@pytest.mark.proves("delays", "Each message arrives once when it is due, in random histories")
@examples(EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_every_message_arrives_once_when_it_is_due(chance: random.Random) -> None:
    with TemporaryDirectory() as directory:
        run = Run(Path(directory), chance)
        try:
            run.go(40)
        finally:
            run.waiting.close()
