"""What a node removes of its own topics, and what it never does, by a clock that the test moves."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.nodes.transactions import begin

from rocketray.base.system_topics import END_TOPIC, HALF_TOPIC, OP_TOPIC, TIMER_TOPIC
from rocketray.broker.retries.retry_records import retry_topic
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.filters.subscription import Subscription
from rocketray.message import StoredMessage
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.store.retention import KEEP_ALL, DiskUse, RetentionPolicy
from rocketray.testing import Broker, Clock
from rocketray.testing.fixtures import broker, clock

__all__ = ["broker", "clock"]

ALL = Subscription.tags("*")
BODY = bytes(3 << 20)  # two a file of the kit
FULL = DiskUse(used=99 << 20, free=1 << 20)
RETRY = retry_topic("shop")


def minimum(broker: Broker, topic: str) -> int:
    return broker.node.shard_statistics(topic)[0].min_queue_offset


def store(broker: Broker, topic: str, count: int) -> None:
    with broker.producer() as producer:
        for _ in range(count):
            producer.send(topic, BODY)


def grow_old(clock: Clock, *, hours: float) -> None:
    """Let much time pass at once, and then the minute in which the node looks for what is old."""
    clock.set(clock() + round(hours * 3_600_000) - 60_000, is_steady=False)
    clock.advance(minutes=1)


@pytest.mark.proves("retention", "Unfinished retries are kept")
def test_retries_go_when_their_group_is_through_with_them_and_they_are_old(
    broker: Broker, clock: Clock
) -> None:
    broker.topics.ensure(RETRY, 1)
    store(broker, RETRY, 6)
    grow_old(clock, hours=200)
    assert minimum(broker, RETRY) == 0, "no group read it yet"
    member = broker.consumer("shop", RETRY, ALL, start="earliest")
    clock.advance(seconds=10)
    while not (got := member.poll()):
        clock.advance(seconds=1)
    member.commit(RETRY, 0, 3)
    grow_old(clock, hours=200)
    broker.node.expire(FULL)
    assert minimum(broker, RETRY) == 2, "what is not finished stays, however old and full it is"
    assert got
    member.commit(RETRY, 0, 6)
    clock.advance(minutes=1)
    assert minimum(broker, RETRY) == 4


@pytest.mark.proves("retention", "Finished retries are kept for 72 h")
def test_retries_that_are_finished_stay_for_three_days(broker: Broker, clock: Clock) -> None:
    broker.topics.ensure(RETRY, 1)
    member = broker.consumer("shop", RETRY, ALL, start="earliest")
    store(broker, RETRY, 6)
    clock.advance(seconds=10)
    while not member.poll():
        clock.advance(seconds=1)
    member.commit(RETRY, 0, 6)
    clock.advance(hours=71)
    assert minimum(broker, RETRY) == 0
    clock.advance(hours=2)
    assert minimum(broker, RETRY) == 4


@pytest.mark.proves("retention", "Dead letters are kept for 30 days, or as their topic says")
def test_dead_letters_stay_for_a_month_or_as_their_topic_says(broker: Broker, clock: Clock) -> None:
    for group in ("a", "b", "c"):
        broker.topics.ensure(f"%DLQ%{group}", 1)
        store(broker, f"%DLQ%{group}", 5)
    broker.topics.set_retention("%DLQ%b", RetentionPolicy(max_age_ms=3_600_000))
    broker.topics.set_retention("%DLQ%c", KEEP_ALL)
    grow_old(clock, hours=29 * 24)
    assert [minimum(broker, f"%DLQ%{group}") for group in "abc"] == [0, 4, 0]
    grow_old(clock, hours=48)
    assert [minimum(broker, f"%DLQ%{group}") for group in "abc"] == [4, 4, 0]


@pytest.mark.proves("retention", "Half messages are removed when they are decided and old")
def test_halves_go_when_they_and_all_before_them_are_decided_and_old(
    broker: Broker, clock: Clock
) -> None:
    def unknown(_message: StoredMessage) -> str:
        return "unknown"

    broker.topics.ensure("Trade", 1)
    with NodeProducer(broker.node, group="payments", check=unknown) as producer:  # type: ignore[arg-type]
        for _ in range(4):
            begin(producer, "Trade", BODY).commit()
        clock.advance(hours=71)
        waits = begin(producer, "Trade", BODY)
        for _ in range(4):
            begin(producer, "Trade", BODY).commit()
        assert minimum(broker, HALF_TOPIC) == 0
        clock.advance(hours=2)
        assert minimum(broker, HALF_TOPIC) == 4
        broker.faults.restart_shard(HALF_TOPIC)
        waits.commit()
        clock.advance(seconds=10)
        assert len(broker.stored("Trade")) == 9
        clock.advance(hours=73)
        begin(producer, "Trade", b"last").commit()
        clock.advance(minutes=2)
        assert minimum(broker, HALF_TOPIC) == 8
        broker.faults.restart_shard(HALF_TOPIC)
        clock.advance(minutes=2)
    assert len(broker.stored("Trade")) == 10


@pytest.mark.proves("retention", "The retention of topics that a service needs is fixed")
@pytest.mark.parametrize("topic", [HALF_TOPIC, END_TOPIC, OP_TOPIC])
def test_what_a_service_needs_has_no_limit_of_a_users(broker: Broker, topic: str) -> None:
    broker.topics.ensure(topic, 1)
    with pytest.raises(ConfigError, match="only the node removes them"):
        broker.topics.set_retention(topic, RetentionPolicy(max_age_ms=1))


@pytest.mark.proves(
    "delays",
    "A message with a long delay does not keep the files of later messages",
)
def test_a_message_that_waits_for_forty_days_does_not_keep_all_that_came_later(
    broker: Broker, clock: Clock
) -> None:
    broker.topics.ensure("orders", 1)
    body = bytes(1 << 20)
    with broker.producer() as producer:
        far = [producer.send("orders", b"far %d" % n, delay=timedelta(days=40)) for n in range(3)]
        for _ in range(20):
            producer.send("orders", body, delay=1)
        clock.advance(minutes=30)
        first = minimum(broker, TIMER_TOPIC)
        assert first > 10, "only the newest file is left"
        handles = [one.recall_handle for one in far]
        assert all(handles)
        assert producer.recall(handles[1] or ""), "by the handle of its first place"
        assert not producer.recall(handles[1] or "")
        broker.faults.restart_shard(TIMER_TOPIC)
        for _ in range(20):
            producer.send("orders", body, delay=1)
        clock.advance(minutes=30)
        assert minimum(broker, TIMER_TOPIC) > first, "those that were rolled are rolled again"
        grow_old(clock, hours=39 * 24)
        clock.advance(days=1)
        found = [one for one in broker.stored("orders") if one.body.startswith(b"far")]
        assert [one.body for one in found] == [b"far 0", b"far 2"]
        assert not any("TIMER_ROLLED_FROM" in one.properties for one in found)
        assert not producer.recall(handles[0] or "")


def test_nobody_makes_a_message_done_by_a_property(broker: Broker, clock: Clock) -> None:
    broker.topics.ensure("orders", 1)
    with broker.producer() as producer:
        producer.send("orders", b"first", delay=5)
        with pytest.raises(InvalidMessageError, match="TIMER_ROLLED_FROM is the node's own"):
            producer.send("orders", b"second", delay=5, properties={"TIMER_ROLLED_FROM": "0"})
        producer.send("orders", b"second", delay=5)
    clock.advance(seconds=6)
    assert [one.body for one in broker.stored("orders")] == [b"first", b"second"]
