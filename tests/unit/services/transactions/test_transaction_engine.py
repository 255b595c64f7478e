"""Transactions against a model, with calls that fail and processes that die at any of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketray.base.property_string import decode_properties
from rocketray.base.system_topics import (
    END_TOPIC,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
)
from rocketray.base.transaction import Decision, decision_message, half_message
from rocketray.broker.retries.undeliverable import TRANSACTION_LETTERS
from rocketray.errors import ShardUnavailableError, TopicNotFoundError
from rocketray.message import ForwardedMessage, Message, PhysicalOffset, QueueOffset, StoredMessage
from rocketray.services.transactions.transaction_engine import TransactionEngine
from rocketray.services.transactions.transaction_state import TransactionLimits
from rocketray.store.age_clock import SETTLING_MS, AgeClock
from rocketray.testing import Clock

GROUP = "payments"
LIMITS = TransactionLimits(
    timeout_ms=6_000, check_interval_ms=30_000, checks_max=3, age_max_ms=10_000_000
)


class Died(BaseException):
    """The process is gone."""


class FakePlaces:
    """Logs in memory. ``trouble`` is asked before and after each write."""

    def __init__(self) -> None:
        self.logs: dict[str, list[StoredMessage]] = {HALF_TOPIC: [], END_TOPIC: [], OP_TOPIC: []}
        self.clock = Clock(0)
        self.topics = {"Trade", "Bill", GIVEN_UP_TOPIC, SCHEDULE_TOPIC, TRANSACTION_LETTERS}
        self.random = Random(0)
        self.trouble: list[type[BaseException]] = []

    def add(self, message: Message) -> int:
        offset = len(self.logs[message.topic])
        named = decode_properties(message.encoded_properties())
        self.logs[message.topic].append(self._stored(message.topic, message.body, named, offset))
        return offset

    def _stored(
        self, topic: str, body: bytes, properties: Any, offset: int, **fields: Any
    ) -> StoredMessage:
        given: dict[str, Any] = {"sys_flag": 0, "prepared_transaction_offset": 0, **fields}
        return StoredMessage(
            topic, 0, QueueOffset(offset), PhysicalOffset(offset * 100), 100, body, properties,
            f"{topic}{offset}", 0, body_crc=0, born_timestamp_ms=5, born_host=("192.0.2.1", 1),
            store_timestamp_ms=self.clock(), store_host=("192.0.2.1", 1), reconsume_times=0, **given,
        )  # fmt: skip

    def read(self, topic: str, queue_offset: int, max_count: int) -> Sequence[StoredMessage]:
        return self.logs[topic][queue_offset : queue_offset + min(max_count, 3)]

    def find(self, topic: str, key: str, max_count: int) -> Sequence[StoredMessage]:
        self._maybe_fail()
        log = self.logs.get(topic, []) + self.logs.get(f"{topic}/0", [])
        return [one for one in log if key in (one.unique_key, *one.keys)][:max_count]

    def store(self, message: Message) -> int:
        self._maybe_fail()
        offset = self.add(message)
        self._maybe_fail()
        return offset

    def forward(self, topic: str, queue_id: int, messages: Sequence[ForwardedMessage]) -> None:
        if topic not in self.topics:
            raise TopicNotFoundError(topic)
        self._maybe_fail()
        log = self.logs.setdefault(f"{topic}/{queue_id}", [])
        for one in messages:
            assert one.topic == topic
            log.append(
                self._stored(
                    topic, one.body, one.properties, len(log), sys_flag=one.sys_flag,
                    prepared_transaction_offset=one.prepared_transaction_offset,
                )
            )  # fmt: skip
        self._maybe_fail()

    def sync(self, topic: str, queue_id: int) -> None:
        """Everything is, unless it fails."""
        self._maybe_fail()

    def is_stored(self, message: ForwardedMessage, queue_id: int) -> bool:
        self._maybe_fail()
        return any(map(message.is_stored_as, self.logs.get(f"{message.topic}/{queue_id}", [])))

    def delivered(self, topic: str, queue_id: int) -> list[bytes]:
        return [one.body for one in self.logs.get(f"{topic}/{queue_id}", [])]

    def _maybe_fail(self) -> None:
        if self.trouble and self.random.random() < 0.3:
            kind = self.random.choice(self.trouble)
            raise ShardUnavailableError("x", "away", 1) if kind is ShardUnavailableError else kind


class Node:
    """Places, the engine on them, and what a producer does."""

    def __init__(self) -> None:
        self.places = FakePlaces()
        self.keys: list[str] = []
        self.restart(None)

    def begin(
        self, topic: str, queue_id: int = 0, properties: Any = None, *, delay_level: int = 0
    ) -> int:
        key = f"key{len(self.keys)}"
        message = Message(topic, key.encode(), properties=properties or {})
        self.keys.append(key)
        return self.places.add(half_message(message, queue_id, GROUP, key, delay_level))

    def decide(self, half: int, outcome: Any, group: str = GROUP) -> None:
        self.places.add(decision_message(Decision(half, self.keys[half], group, outcome)))

    def step(self, later_ms: int = 0) -> int | None:
        clock = self.places.clock
        clock.advance(milliseconds=later_ms)
        return self.engine.step(clock())

    def checks(self, group: str = GROUP, *, at_ms: int | None = None) -> list[StoredMessage]:
        if at_ms is not None:
            self.places.clock.set(at_ms)
        return self.engine.checks(group)

    def restart(self, progress: Any) -> None:
        places = self.places
        clock = AgeClock(places.clock, places.clock.elapsed)
        self.engine = TransactionEngine(places, places, progress, LIMITS, clock=clock)


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.mark.proves(
    "transactions",
    "Nothing is delivered before the commit, and everything after it",
)
def test_nothing_is_delivered_before_the_commit_and_all_of_it_after(node: Node) -> None:
    half = node.begin("Trade", 2)
    assert node.step() is not None
    assert node.places.delivered("Trade", 2) == []
    node.decide(half, "commit")
    assert node.step() is None
    [message] = node.places.logs["Trade/2"]
    assert message.body == b"key0"
    assert message.sys_flag == 8
    assert message.prepared_transaction_offset == 0
    named = {"REAL_TOPIC": "Trade", "REAL_QID": "2", "TRAN_MSG": "true", "PGROUP": GROUP}
    named |= {"UNIQ_KEY": "key0", "__transactionId__": "key0"}
    assert message.properties == named
    [op] = node.places.logs[OP_TOPIC]
    assert (op.body, op.tags) == (b"0,", "d")


def test_a_half_with_a_delay_level_waits_from_its_commit_on(node: Node) -> None:
    half = node.begin("Trade", 2, delay_level=3)
    node.decide(half, "commit")
    node.step()
    [waiting] = node.places.logs[f"{SCHEDULE_TOPIC}/2"]
    assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("Trade", "2")
    assert (waiting.sys_flag, waiting.properties["DELAY"]) == (8, "3")


@pytest.mark.proves("transactions", "The first decision counts")
def test_a_rollback_is_never_delivered_and_the_first_decision_counts(node: Node) -> None:
    first, second = node.begin("Trade"), node.begin("Trade")
    node.decide(first, "rollback")
    node.decide(first, "commit")
    node.decide(second, "commit")
    node.decide(second, "rollback")
    assert node.step() is None
    node.decide(first, "commit")
    node.step()
    assert node.places.delivered("Trade", 0) == [b"key1"]
    assert node.engine.overview(0).counts.rolled_back == 1
    assert node.engine.overview(0).counts.committed == 1


def test_what_is_begun_and_committed_while_another_is_carried_out_is_carried_out_too(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = node.places.forward

    def slow_forward(topic: str, queue_id: int, messages: Sequence[ForwardedMessage]) -> None:
        forward(topic, queue_id, messages)
        if len(node.keys) == 1:
            node.decide(node.begin("Bill"), "commit")

    monkeypatch.setattr(node.places, "forward", slow_forward)
    node.decide(node.begin("Trade"), "commit")
    assert node.step() is None
    assert node.places.delivered("Bill", 0) == [b"key1"]


def test_strangers_decide_nothing(node: Node) -> None:
    half = node.begin("Trade")
    node.decide(half, "commit", group="others")
    node.places.add(decision_message(Decision(half, "another-key", GROUP, "commit")))
    node.places.add(decision_message(Decision(99, "key0", GROUP, "commit")))
    node.places.add(Message(END_TOPIC, b"", "commit"))
    node.step()
    assert node.engine.overview(0).undecided == 1
    assert node.places.delivered("Trade", 0) == []


@pytest.mark.proves("transactions", "Checks are sent on time and not too often")
def test_a_producer_is_asked_in_time_and_not_too_often(node: Node) -> None:
    node.begin("Trade")
    node.begin("Trade", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"})
    node.step()
    assert node.checks(at_ms=5_999) == []
    assert node.checks("others", at_ms=6_000) == []
    [asked] = node.checks(at_ms=6_000)
    assert (asked.topic, asked.unique_key) == ("Trade", "key0")
    assert node.checks(at_ms=35_999) == []
    assert [one.unique_key for one in node.checks(at_ms=66_000)] == ["key0", "key1"]


@pytest.mark.proves("transactions", "An undecided transaction is kept, not dropped")
def test_what_nobody_decides_is_kept_apart(node: Node) -> None:
    node.begin("Trade")
    now = 6_000
    for _ in range(LIMITS.checks_max):
        node.step()
        assert len(node.checks(at_ms=now)) == 1
        now += 30_000
    node.places.clock.set(now - 1)
    node.step()
    assert node.engine.overview(0).undecided == 1, "the last question may still be answered"
    node.step(1)
    assert node.places.delivered(GIVEN_UP_TOPIC, 0) == [b"key0"]
    assert node.engine.overview(0).counts.abandoned == 1


@pytest.mark.proves("transactions", "Without a producer a half message waits until it is too old")
def test_without_a_producer_a_half_waits_until_it_is_too_old(node: Node) -> None:
    node.begin("Trade")
    node.step(LIMITS.age_max_ms - 1)
    assert node.engine.overview(0).undecided == 1
    node.step(1)
    assert node.places.delivered(GIVEN_UP_TOPIC, 0) == [b"key0"]


@pytest.mark.proves(
    "transactions",
    "A step of the wall clock abandons no transaction and sends no check early or late",
)
def test_a_step_of_the_wall_clock_abandons_nothing_and_asks_nobody(node: Node) -> None:
    clock = node.places.clock
    node.begin("Trade")
    node.step()
    clock.advance(milliseconds=SETTLING_MS)
    assert len(node.checks()) == 1
    clock.jump(seconds=80 * 3600)
    node.begin("Trade")
    node.step()
    assert node.checks() == []
    assert node.engine.overview(0).undecided == 2
    clock.jump(seconds=-80 * 3600)
    node.step()
    assert len(node.checks(at_ms=clock() + 30_000)) == 2, "in time, though one is of the future"


@pytest.mark.proves(
    "durability",
    "A wall clock that is set, or wrong for up to ten minutes at a start, removes nothing and "
    "abandons no transaction",
)
def test_a_clock_that_is_wrong_at_a_restart_abandons_nothing(node: Node) -> None:
    clock = node.places.clock
    node.begin("Trade")
    node.step()
    clock.jump(seconds=80 * 3600)
    node.restart(node.engine.progress())
    node.step(SETTLING_MS - 1)
    clock.jump(seconds=-80 * 3600)
    node.step(1)
    assert node.engine.overview(0).undecided == 1
    node.step(LIMITS.age_max_ms)
    assert node.engine.overview(0).counts.abandoned == 1


@pytest.mark.proves("transactions", "Checks are still counted after a restart")
def test_questions_are_still_counted_after_a_restart(node: Node) -> None:
    node.begin("Trade")
    node.step()
    assert len(node.checks(at_ms=6_000)) == 1
    node.restart(node.engine.progress())
    assert node.engine.progress().checks == {0: 1}


def test_a_topic_that_is_gone_keeps_no_other_waiting(node: Node) -> None:
    node.places.topics.discard("Bill")
    halves = [node.begin("Bill"), node.begin("Trade")]
    for half in halves:
        node.decide(half, "commit")
    node.step()
    node.step()
    assert node.places.delivered("Trade", 0) == [b"key1"]
    assert node.places.delivered(TRANSACTION_LETTERS, 0) == [b"key0"]
    assert node.engine.overview(0).counts.dead_letters == 1


def test_a_half_without_a_place_is_kept_apart(node: Node) -> None:
    half = node.begin("Trade")
    log = node.places.logs[HALF_TOPIC]
    log[half] = replace(log[half], properties={"UNIQ_KEY": "key0", "PGROUP": GROUP})
    node.decide(half, "commit")
    node.step()
    assert node.places.delivered(GIVEN_UP_TOPIC, 0) == [b"key0"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from(["Trade", "Bill"]), st.integers(0, 1)),
        st.tuples(st.just("decide"), st.integers(0, 9), st.sampled_from(["commit", "rollback"])),
        st.tuples(st.just("step"), st.integers(0, 40_000), st.just(0)),
        st.tuples(st.just("check"), st.just(0), st.just(0)),
        st.tuples(st.just("save"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


def live(node: Node, steps: Sequence[Any]) -> dict[int, str]:
    """Do the *steps*, with trouble at any call; the first decision about each half."""
    progress: Any = None
    first: dict[int, str] = {}
    for kind, one, two in steps:
        died = kind == "restart"
        node.places.trouble = [ShardUnavailableError, Died]
        try:
            match kind:
                case "begin":
                    node.begin(one, two)
                case "decide" if node.keys:
                    node.decide(one % len(node.keys), two)
                    first.setdefault(one % len(node.keys), two)
                case "step":
                    node.step(one)
                case "check":
                    node.checks()
                case "save":
                    progress = node.engine.progress()
        except Died:
            died = True
        node.places.trouble = []
        if died:
            node.restart(progress)
    for _ in range(3):  # a queue that did not take its messages is left alone for a minute at most
        node.step(60_000)
    return first


@pytest.mark.proves("transactions", "A commit is delivered once, whatever fails")
@given(STEPS, st.integers(0, 2**32))
def test_each_commit_is_delivered_once_whatever_fails(steps: list[Any], seed: int) -> None:
    node = Node()
    node.places.random = Random(seed)
    first = live(node, steps)
    given_up = node.places.delivered(GIVEN_UP_TOPIC, 0)
    assert len(given_up) == len(set(given_up))
    queues = [(topic, queue_id) for topic in ("Trade", "Bill") for queue_id in (0, 1)]
    found = [body for queue in queues for body in node.places.delivered(*queue)]
    assert len(found) == len(set(found)), "no message comes twice"
    committed = {node.keys[half].encode() for half, outcome in first.items() if outcome == "commit"}
    assert set(found) <= committed
    assert committed - set(found) <= set(given_up), "none is dropped"
    ended = first.keys() | {node.keys.index(body.decode()) for body in given_up}
    assert node.engine.overview(0).undecided == len(node.keys) - len(ended)
