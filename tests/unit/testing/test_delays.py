"""Messages that are delivered later, on a node whose clock the test moves."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rocketray.base.delay import DELAY_LEVELS_MS
from rocketray.errors import ConfigError
from rocketray.testing import Broker, Clock

HOUR_MS = 3_600_000


def bodies(broker: Broker) -> list[bytes]:
    return [message.body for message in broker.stored("orders")]


@pytest.fixture(autouse=True)
def _orders(broker: Broker) -> None:
    broker.topics.ensure("orders", 1)


def test_every_level_delivers_at_its_millisecond(broker: Broker, clock: Clock) -> None:
    sent_ms = clock()
    with broker.producer() as producer:
        for level in range(18, 0, -1):
            producer.send("orders", b"%d" % level, delay_level=level)
    clock.advance(hours=3)
    arrived = {int(one.body): one.store_timestamp_ms for one in broker.stored("orders")}
    assert [arrived[level] - sent_ms for level in range(1, 19)] == list(DELAY_LEVELS_MS)


def test_a_message_waits_for_a_day_and_no_less(broker: Broker, clock: Clock) -> None:
    with broker.producer() as producer:
        producer.send("orders", b"delay", delay=timedelta(days=1))
        producer.send("orders", b"time", deliver_at=clock() + 24 * HOUR_MS)
    clock.advance(hours=23, minutes=59, seconds=59, milliseconds=999)
    assert bodies(broker) == []
    clock.advance(milliseconds=1)
    assert bodies(broker) == [b"delay", b"time"]


def test_a_clock_that_is_set_back_holds_up_no_delay(broker: Broker, clock: Clock) -> None:
    with broker.producer() as producer:
        producer.send("orders", b"delay", delay=60)
        producer.send("orders", b"level", delay_level=5)
        producer.send("orders", b"time", deliver_at=clock() + 60_000)
        clock.jump(seconds=-86_400)
        clock.advance(seconds=61)  # that it was set is noticed within one
        assert sorted(bodies(broker)) == [b"delay", b"level"]
        producer.send("orders", b"while behind", delay_level=1)
        clock.advance(milliseconds=999)
        assert len(bodies(broker)) == 2
        clock.advance(milliseconds=1)
        assert bodies(broker)[2:] == [b"while behind"]
    clock.jump(seconds=86_400)
    clock.advance(seconds=1)
    assert bodies(broker)[3:] == [b"time"]


def test_a_recalled_message_does_not_come(broker: Broker, clock: Clock) -> None:
    with broker.producer() as producer:
        sent = producer.send("orders", b"no", delay_level=18)
        assert sent.recall_handle is not None
        assert producer.recall(sent.recall_handle)
    clock.advance(hours=3)
    assert bodies(broker) == []


def test_a_topic_that_is_shut_gets_its_messages_when_it_opens(broker: Broker, clock: Clock) -> None:
    with broker.producer() as producer:
        producer.send("orders", b"1", delay=1)
        producer.send("orders", b"2", delay=2)
        broker.topics.set_permission("orders", 4)
        clock.advance(seconds=10)
        assert bodies(broker) == []
        broker.topics.set_permission("orders", 6)
        clock.advance(minutes=1)
        assert bodies(broker) == [b"1", b"2"]
        with pytest.raises(ConfigError, match="one delay"):
            producer.send("orders", b"3", delay=1, delay_level=1)
