"""SQL92 that fails on messages is said once, with the message and the reason, and then counted."""

from __future__ import annotations

from typing import Any

import pytest

from rocketray.filters.subscription import Subscription
from rocketray.groups.filter_plan import QueuePart
from rocketray.message import Message
from rocketray.messaging.consumers.filter_errors import FilterErrorLog
from rocketray.messaging.consumers.queue_stream import QueueStreams
from rocketray.runtime.ipc.match_ring import MatchRing
from rocketray.testing import Broker

SQL = Subscription.sql("amount >= 100", "rocketmq")


def amounts(broker: Broker, *values: str) -> None:
    with broker.producer() as producer:
        for value in values:
            properties = {"amount": value}
            message = Message("Trade", b"x", properties=properties, unique_key=f"u{value}")
            producer.send_many("Trade", [message], queue_id=1)


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "the SQL filter" in text]


@pytest.mark.parametrize("bitmaps", ["off", "on"])
def test_the_first_failure_is_logged_with_its_message_and_reason(
    caplog: pytest.LogCaptureFixture, bitmaps: str
) -> None:
    with Broker() as broker:
        broker.topics.ensure("Trade", 2)
        broker.topics.set_bitmaps("Trade", bitmaps)
        with broker.consumer("audit", "Trade", SQL) as member:
            broker.clock.advance(seconds=5)
            amounts(broker, "200", "50", "120.0", "abc", "300")
            got = [int(one.queue_offset) for batch in member.poll() for one in batch.messages()]
            assert got == [0, 4]
            broker.clock.advance(seconds=5)
            [line] = failures(caplog)
            assert "group audit: the SQL filter 'amount >= 100' failed on" in line
            assert "at topic Trade queue 1 offset 2, unique key u120.0: amount >= 100: '1" in line
            amounts(broker, *["x"] * 8)
            broker.clock.advance(seconds=5)
            told = failures(caplog)
            assert len(told) == 2, "and not one a message"
            assert "failed on 10 messages of topic Trade so far" in told[1]
            [group] = broker.groups.all()
            assert group.counters.evaluation_errors == 10


def test_each_expression_has_its_line_and_each_tenfold_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = Subscription.sql("amount > 1", "rocketmq")
    with Broker() as broker:
        broker.topics.ensure("Trade", 1)
        log = FilterErrorLog(broker.messages, "g", "Trade")
        source = QueueStreams(broker.node, "g", "Trade")
        for subscription in (SQL, SQL, other, SQL):
            stream = source.open(0, QueuePart(subscription, None), 0)
            filtered: Any = stream._matches
            MatchRing(filtered.ring.path).note_error(7)
            log.log_failures([stream], 1)
            stream.stop()
            stream.close()
        source.close()
    told = failures(caplog)
    assert len(told) == 2
    assert all("offset 7, unique key -: it can no longer be read" in text for text in told)
    caplog.clear()
    for count in (9, 10, 99, 5_000, 9_999, 10_000):
        log.log_failures([], count)
    assert [text.split("failed on ")[1].split()[0] for text in failures(caplog)] == [
        "10",
        "5,000",
        "10,000",
    ]


def test_filters_that_do_not_fail_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with Broker() as broker:
        broker.topics.ensure("Trade", 2)
        with broker.consumer("audit", "Trade", SQL) as member:
            amounts(broker, "200", "50")
            member.poll()
            broker.clock.advance(seconds=5)
    assert not failures(caplog)
