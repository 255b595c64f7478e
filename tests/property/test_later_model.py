"""Transactions, delays and recalls, against lists: what waits comes once, in time, or never.

What holds is in support/models/later_model.py. A member of a group reads what comes, and gets all of it.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.harness.machines import run, run_histories
from support.harness.quiet import quiet_log
from support.models.group_model import Reader
from support.models.later_model import TOPIC, Half, Later, LaterModel
from support.nodes.transactions import begin

from rocketray.base.delay import DelayOptions
from rocketray.base.system_topics import END_TOPIC, HALF_TOPIC
from rocketray.base.transaction import Outcome, Verdict
from rocketray.errors import (
    InvalidMessageError,
    ShardUnavailableError,
    StoreError,
    TransactionDecidedError,
)
from rocketray.message import StoredMessage
from rocketray.messaging.producers import transactional_sends
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.messaging.producers.transactional_sends import CheckAnswer, Transaction
from rocketray.testing import Broker

QUEUES = 2
HISTORIES = 10
UNDECIDED_MAX = 20
GROUPS = ("p", "q")
_GIVING_UP_MS = 61_000  # how long the copy of what is given up may come after the decision
LEVELS = {1: 1, 5: 2, 30: 4}  # the delay level of so many seconds
_MEMORY = Path("/dev/shm")  # the node syncs its files; that is not what is tested here

queue_ids = st.integers(0, QUEUES - 1)
groups = st.sampled_from(GROUPS)
outcomes: st.SearchStrategy[Outcome] = st.sampled_from(["commit", "rollback"])
answers: st.SearchStrategy[CheckAnswer] = st.sampled_from(["unknown", "commit", "rollback"])
halves = st.runner().flatmap(lambda machine: st.sampled_from(sorted(machine.model.halves)))
delayed = st.runner().flatmap(lambda machine: st.sampled_from(sorted(machine.model.later)))


class LaterMachine(RuleBasedStateMachine):
    """Producers, the node's services, and one reader."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.exits = ExitStack()
        self.exits.enter_context(quiet_log())  # it tells of each failure
        self.directory = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
        self.exits.callback(shutil.rmtree, self.directory)
        self.broker = Broker(self.directory)
        self.exits.callback(self.broker.close)
        self.broker.topics.ensure(TOPIC, QUEUES)
        self.model = LaterModel(self.broker, QUEUES)
        self.names = itertools.count(1)
        self.producer = self.broker.producer()
        self.exits.callback(self.producer.close)
        self.asked: list[int] = []
        self.answers: list[CheckAnswer] = []
        self.transactional: dict[str, NodeProducer] = {}

    @initialize()
    def begin(self) -> None:
        for group in GROUPS:
            self.transactional[group] = NodeProducer(
                self.broker.node, group=group, check=self.answer
            )
            self.exits.callback(self.transactional[group].close)
        member = self.broker.consumer("g", TOPIC, self.model.filter.subscription, client_id="m")
        self.reader = Reader(self.model, "m", member, 2)

    @rule(queue_id=queue_ids)
    def send(self, queue_id: int) -> None:
        name = next(self.names)
        self.model.sent.add(name)
        try:
            self.producer.send(TOPIC, b"%d" % name, tags="C", queue_id=queue_id)
        except ShardUnavailableError:
            self.model.sent.discard(name)

    @precondition(lambda self: len(self.model.undecided()) < UNDECIDED_MAX)
    @rule(
        queue_id=queue_ids,
        group=groups,
        level=st.sampled_from([0, 0, 1, 3]),
        is_here=st.booleans(),
    )
    def begin_transaction(self, queue_id: int, group: str, level: int, *, is_here: bool) -> None:
        """In this process, or in one that is not asked what became of it."""
        name = next(self.names)
        begun = begin(
            self.transactional[group],
            TOPIC,
            b"%d" % name,
            tags="C",
            queue_id=queue_id,
            delay_level=level,
        )
        self.model.halves[name] = Half(
            group,
            queue_id,
            level,
            begun.message_id,
            begun.half_place,
            self.broker.clock(),
            begun if is_here else None,
        )

    @precondition(lambda self: self.model.halves)
    @rule(name=halves, outcome=outcomes, is_lost=st.booleans())
    def decide(self, name: int, outcome: Outcome, *, is_lost: bool) -> None:
        """The first time counts; who decides otherwise afterwards hears what was decided."""
        half = self.model.halves[name]
        self.model.observe()
        counts = self.model.decide(name, outcome)
        transaction, half.transaction = half.transaction, None
        if is_lost:
            self.broker.faults.lose_acks(1, END_TOPIC)
            with pytest.raises(ShardUnavailableError, match="the outcome of the"):
                self._tell(half, transaction, outcome)
        found = Verdict(outcome, counts.decided_ms, counts.decider)
        try:
            self._tell(half, transaction, outcome)
            half.is_promised |= outcome == "commit"
        except TransactionDecidedError as error:
            found = Verdict(error.outcome, error.decided_ms, error.decider)  # type: ignore[arg-type]
        assert (found.outcome, found.decider) == (counts.outcome, counts.decider)
        assert abs(found.decided_ms - counts.decided_ms) <= _GIVING_UP_MS * (
            found.decider == "node"
        )

    def _tell(self, half: Half, transaction: Transaction | None, outcome: Outcome) -> None:
        """Decide in the process that began it, or in another one."""
        if transaction is None:
            producer = self.transactional[half.group]
            producer.transactions.decide(half.half_place, half.unique_key, outcome)
        elif outcome == "commit":
            transaction.commit()
        else:
            transaction.rollback()

    @precondition(lambda self: self.model.halves)
    @rule(name=halves, outcome=outcomes, is_stranger=st.booleans())
    def decide_in_vain(self, name: int, outcome: Outcome, *, is_stranger: bool) -> None:
        """A decision that cannot be stored, or comes from a stranger, is none."""
        half = self.model.halves[name]
        if is_stranger:
            other = next(group for group in GROUPS if group != half.group)
            with pytest.raises(StoreError, match="is unknown: half message"):
                self.transactional[other].transactions.decide(
                    half.half_place, half.unique_key, outcome
                )
            with pytest.raises(StoreError, match="is unknown: half message"):
                self.transactional[half.group].transactions.decide(
                    half.half_place, "another", outcome
                )
            return
        self.broker.faults.fail_appends(1, END_TOPIC)
        with pytest.raises(ShardUnavailableError):
            self.transactional[half.group].transactions.decide(
                half.half_place, half.unique_key, outcome
            )

    @rule(group=groups, told=st.lists(answers, min_size=1, max_size=4))
    def answer_checks(self, group: str, told: list[CheckAnswer]) -> None:
        """A producer hears what the node wants to know, and answers, or does not know."""
        self.asked, self.answers = [], told
        due = self.model.to_ask(group)
        assert self.transactional[group].transactions.answer_checks() == len(due)
        assert self.asked == [name for name in due if not self.model.halves[name].transaction]

    def answer(self, message: StoredMessage) -> CheckAnswer:
        name = int(message.body)
        assert message.topic == TOPIC
        told = self.answers[len(self.asked) % len(self.answers)]
        self.asked.append(name)
        if told != "unknown":
            self.model.decide(name, told, "check")
        return told

    @rule(
        queue_id=queue_ids,
        seconds=st.sampled_from([1, 5, 30]),
        how=st.sampled_from(["delay_level", "delay", "deliver_at"]),
    )
    def send_later(self, queue_id: int, seconds: int, how: str) -> None:
        name = next(self.names)
        due_ms = self.broker.clock() + 1000 * seconds
        options: dict[str, DelayOptions] = {
            "delay_level": {"delay_level": LEVELS[seconds]},
            "delay": {"delay": seconds},
            "deliver_at": {"deliver_at": due_ms},
        }
        sent = self.producer.send(TOPIC, b"%d" % name, tags="C", queue_id=queue_id, **options[how])
        assert sent.recall_handle is not None
        self.model.later[name] = Later(queue_id, due_ms, sent.recall_handle)

    @precondition(lambda self: self.model.later)
    @rule(name=delayed)
    def recall(self, name: int) -> None:
        one = self.model.later[name]
        self.model.observe()
        is_in_time = not one.has_come and not one.is_recalled
        assert self.broker.delays.recall(one.handle) == is_in_time
        one.is_recalled |= is_in_time

    @precondition(lambda self: self.model.later)
    @rule(name=delayed)
    def recall_what_is_none(self, name: int) -> None:
        with pytest.raises(InvalidMessageError):
            self.broker.delays.recall(self.model.later[name].handle[:-5])

    @rule(seconds=st.sampled_from([0.1, 0.9, 1, 1, 2, 5, 7, 31, 31, 61]))
    def pass_time(self, seconds: float) -> None:
        self.advance(seconds)

    @precondition(lambda self: self.model.undecided())
    @rule(times=st.sampled_from([3, 8, 16]))
    def be_asked_for_long(self, times: int) -> None:
        """Nobody knows, however often the node asks."""
        for _ in range(times):
            self.advance(31)
            for group in GROUPS:
                self.answer_checks(group, ["unknown"])

    @rule(queue_id=queue_ids, is_stored=st.booleans())
    def let_a_delivery_fail(self, queue_id: int, *, is_stored: bool) -> None:
        (self.broker.faults.lose_acks if is_stored else self.broker.faults.fail_appends)(
            1, TOPIC, queue_id
        )

    @rule(queue_id=queue_ids)
    def take_a_queue_away_or_bring_it_back(self, queue_id: int) -> None:
        faults = self.broker._stepped.faults[TOPIC, queue_id]
        faults.is_down = not faults.is_down
        self.model.tolerate()

    @rule(part=st.sampled_from(["host", "shard", "filter"]), queue_id=queue_ids)
    def restart(self, part: str, queue_id: int) -> None:
        if part == "host":
            self.broker.faults.restart_shard(HALF_TOPIC)
            self.model.host_restarted()
        elif part == "shard":
            self.broker.faults.restart_shard(TOPIC, queue_id)
        else:
            self.broker.faults.restart_filter()

    @rule()
    def read(self) -> None:
        self.model.observe()
        self.reader.poll(100)
        for delivery in self.reader.working():
            self.reader.finish(delivery, 3)
        self.reader.commit()

    @invariant()
    def all_that_came_has_its_reason(self) -> None:
        type(self).steps += 1
        self.model.observe()

    @invariant()
    def what_is_undecided_is_visible(self) -> None:
        engine = self.broker.node.services.transactions._engine
        if engine is not None and self.broker.clock() > self.model.tolerant_until_ms:
            assert engine.overview(0).undecided >= len(self.model.undecided())

    def advance(self, seconds: float) -> None:
        """Let time pass; what comes late has a reason."""
        all_faults = [self.broker._stepped.faults[TOPIC, queue_id] for queue_id in range(QUEUES)]
        is_faulty = any(
            faults.failing or faults.losing_acks or faults.is_down for faults in all_faults
        )
        self.broker.clock.advance(seconds=seconds)
        if is_faulty:
            self.model.tolerate()
        self.model.check_times()

    def teardown(self) -> None:
        with self.exits:
            if sys.exception() is None:
                self.heal()

    def heal(self) -> None:
        """All is well again, and so long that nobody decides any more: then all is over."""
        for queue_id in range(QUEUES):
            faults = self.broker._stepped.faults[TOPIC, queue_id]
            faults.is_down, faults.failing, faults.losing_acks = False, 0, 0
        self.advance(120)
        self.advance(60)
        if self.model.undecided():
            self.be_asked_for_long(16)
            self.advance(31)
        for _ in range(3):
            self.advance(1)
            self.reader.poll(1000)
            for delivery in self.reader.working():
                self.reader.finish(delivery, 1000)
            self.reader.commit()
        self.advance(1)
        offsets = [max(self.model._heard(queue_id), 0) for queue_id in range(QUEUES)]
        assert offsets == [len(queue.sent) for queue in self.model.queues]
        self.model.check_end()


@pytest.fixture(autouse=True)
def _no_checks_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_sends, "_ASK_INTERVAL_S", 1e6)


@pytest.mark.timeout(600)
def test_some_histories(seed: int, amount: Callable[[int], int]) -> None:
    run_histories(LaterMachine, seed, amount(HISTORIES), 60)  # each asks for minutes of the clock


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_more_steps(seed: int) -> None:
    histories = int(os.environ.get("ROCKETRAY_TEST_HISTORIES", str(10 * HISTORIES)))
    run(LaterMachine, histories, seed)
