from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rocketray.base.delay import (
    DELAY_LEVELS_MS,
    DELAY_MAX_MS,
    Delay,
    DelayOptions,
    after,
    at_level,
    at_time,
    restored,
)
from rocketray.base.property_string import decode_properties
from rocketray.base.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.message import ForwardedMessage, Message, PhysicalOffset, QueueOffset, StoredMessage

NOW = 1_700_000_000_000
PAID = Message(
    "trade",
    b"paid",
    "pay",
    ["order-1", "order-2"],
    {"amount": "9"},
    flag=5,
    unique_key="U1",
    born_timestamp_ms=NOW - 3,
)


def stored(message: Message, **changes: Any) -> StoredMessage:
    fields: dict[str, Any] = {
        "topic": message.topic,
        "queue_id": 0,
        "queue_offset": QueueOffset(3),
        "physical_offset": PhysicalOffset(300),
        "size": 200,
        "body": message.body,
        "properties": decode_properties(message.encoded_properties()),
        "offset_message_id": "0A00000100002A9F000000000000012C",
        "flag": message.flag,
        "sys_flag": 0,
        "body_crc": 0,
        "born_timestamp_ms": message.born_timestamp_ms,
        "born_host": ("127.0.0.1", 0),
        "store_timestamp_ms": NOW,
        "store_host": ("10.0.0.1", 10911),
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
    }
    return StoredMessage(**{**fields, **changes})


def test_the_eighteen_levels_are_rocketmqs() -> None:
    text = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    units = {"s": 1000, "m": 60_000, "h": 3_600_000}
    assert list(DELAY_LEVELS_MS) == [int(one[:-1]) * units[one[-1]] for one in text.split()]


def test_a_message_with_a_level_waits_in_that_levels_queue() -> None:
    message, queue_id = at_level(PAID, 3, queue_id=7)
    assert (message.topic, queue_id) == (SCHEDULE_TOPIC, 2)
    assert decode_properties(message.encoded_properties()) == {
        "UNIQ_KEY": "U1",
        "KEYS": "order-1 order-2",
        "TAGS": "pay",
        "amount": "9",
        "DELAY": "3",
        "REAL_TOPIC": "trade",
        "REAL_QID": "7",
    }


def test_a_level_above_the_last_is_the_last() -> None:
    message, queue_id = at_level(PAID, 99, 0)
    assert (message.properties["DELAY"], queue_id) == ("18", 17)


@pytest.mark.parametrize(
    ("deliver_at", "timer_out"),
    [
        (NOW + 1, NOW),
        (NOW + 999, NOW),
        (NOW + 1000, NOW),  # a whole second counts for the one before it
        (NOW + 1001, NOW + 1000),
        (NOW + DELAY_MAX_MS, NOW + DELAY_MAX_MS - 1000),
    ],
)
def test_a_message_with_a_time_waits_in_the_timer_topic(deliver_at: int, timer_out: int) -> None:
    message, queue_id = at_time(PAID, deliver_at, 7, NOW)
    assert (message.topic, queue_id) == (TIMER_TOPIC, 0)
    assert decode_properties(message.encoded_properties()) == {
        "UNIQ_KEY": "U1",
        "KEYS": "order-1 order-2",
        "TAGS": "pay",
        "amount": "9",
        "TIMER_DELIVER_MS": str(deliver_at),
        "TIMER_OUT_MS": str(timer_out),
        "REAL_TOPIC": "trade",
        "REAL_QID": "7",
    }


def test_a_message_with_a_delay_says_so_beside_the_time() -> None:
    message, _ = after(PAID, 2500, 7, NOW)
    assert message.properties["TIMER_DELAY_MS"] == "2500"
    assert message.properties["TIMER_DELIVER_MS"] == str(NOW + 2500)


@pytest.mark.parametrize("deliver_at", [NOW, NOW - 1, 0])
def test_a_time_in_the_past_means_now(deliver_at: int) -> None:
    assert at_time(PAID, deliver_at, 7, NOW) == (PAID, 7)
    assert after(PAID, deliver_at - NOW, 7, NOW) == (PAID, 7)


def test_more_than_forty_days_are_refused() -> None:
    with pytest.raises(ConfigError, match="by 40 days at most"):
        at_time(PAID, NOW + DELAY_MAX_MS + 1, 0, NOW)


@pytest.mark.parametrize("level", [0, -1])
def test_a_level_below_one_is_refused(level: int) -> None:
    with pytest.raises(ConfigError, match="levels are 1 to 18"):
        at_level(PAID, level, 0)


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, TIMER_TOPIC])
def test_what_waits_already_cannot_be_delayed(topic: str) -> None:
    with pytest.raises(InvalidMessageError, match="only the node stores"):
        at_level(Message(topic, b""), 1, 0)


def test_the_way_back_keeps_all_that_a_message_says() -> None:
    waiting, _ = at_level(PAID, 3, 7)
    message, queue_id = restored(stored(waiting, reconsume_times=2, born_host=("10.9.8.7", 55)))
    assert queue_id == 7
    assert message == ForwardedMessage(
        topic="trade",
        body=b"paid",
        # As RocketMQ, which encoded DELAY, REAL_TOPIC and REAL_QID before it forgot them.
        properties=decode_properties(waiting.encoded_properties()),
        born_timestamp_ms=NOW - 3,
        born_host=("10.9.8.7", 55),
        flag=5,
        reconsume_times=2,
    )


def test_a_second_delay_replaces_the_first() -> None:
    waiting, _ = after(PAID, 2500, 7, NOW)
    again, queue_id = at_level(restored(stored(waiting)).message, 1, 8)
    assert queue_id == 0
    assert again.properties == {
        "UNIQ_KEY": "U1",
        "KEYS": "order-1 order-2",
        "TAGS": "pay",
        "amount": "9",
        "DELAY": "1",
        "REAL_TOPIC": "trade",
        "REAL_QID": "8",
    }


@pytest.mark.parametrize(
    "properties",
    [
        {"REAL_QID": "1"},
        {"REAL_TOPIC": "trade"},
        {"REAL_TOPIC": "no/name", "REAL_QID": "1"},
        {"REAL_TOPIC": "trade", "REAL_QID": "-1"},
        {"REAL_TOPIC": "trade", "REAL_QID": "99999"},
        {"REAL_TOPIC": "trade", "REAL_QID": "\u0661"},
    ],
)
def test_a_message_that_belongs_nowhere_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidMessageError, match="does not name its topic and queue"):
        restored(stored(PAID, topic=SCHEDULE_TOPIC, properties=properties))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"delay_level": None, "delay": None}, None),
        ({"delay_level": 3}, Delay(level=3)),
        ({"delay": 1.5}, Delay(delay_ms=1500)),
        ({"delay": timedelta(days=40)}, Delay(delay_ms=DELAY_MAX_MS)),
        ({"delay": 0.0001}, Delay(delay_ms=1)),
        ({"delay": 4.001}, Delay(delay_ms=4001)),
        ({"delay": float("-inf")}, Delay(delay_ms=0)),
        ({"deliver_at": NOW}, Delay(deliver_at_ms=NOW)),
        ({"deliver_at": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)}, Delay(deliver_at_ms=NOW)),
    ],
)
def test_a_delay_is_a_level_a_time_span_or_a_time(
    options: DelayOptions, expected: Delay | None
) -> None:
    assert Delay.of(**options) == expected


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delay_level": 1, "delay": 1}, "a message has one delay"),
        ({"delay": 1, "deliver_at": NOW}, "a message has one delay"),
        ({"delay_level": 1.5}, "give a whole number"),
        ({"delay_level": True}, "give a whole number"),
        ({"delay": "1s"}, "give seconds, or a timedelta"),
        ({"delay": float("nan")}, "delay is not a number"),
        ({"delay": float("inf")}, "by 40 days at most"),
        ({"delay": 10**400}, "by 40 days at most"),
        ({"delay": timedelta(days=40, milliseconds=1)}, "by 40 days at most"),
        ({"deliver_at": 1.5}, "as a whole number"),
        ({"deliver_at": datetime(2023, 11, 14)}, "has no time zone"),  # noqa: DTZ001
    ],
)
def test_what_is_no_delay_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Delay.of(**options)


@pytest.mark.parametrize(
    ("delay", "topic"),
    [
        (Delay(level=2), SCHEDULE_TOPIC),
        (Delay(delay_ms=5), TIMER_TOPIC),
        (Delay(deliver_at_ms=NOW + 5), TIMER_TOPIC),
        (Delay(deliver_at_ms=NOW), "trade"),
        (Delay(delay_ms=-5), "trade"),
    ],
)
def test_a_delay_says_where_a_message_waits(delay: Delay, topic: str) -> None:
    assert delay.place_message(PAID, 1, NOW).message.topic == topic


@pytest.mark.parametrize(
    ("delay", "due_ms"),
    [
        (Delay(level=3), 20_000),
        (Delay(level=99), 7_210_000),
        (Delay(delay_ms=5), 10_005),
        (Delay(deliver_at_ms=70_000), 70_000),
    ],
)
def test_a_delay_says_when_a_message_is_due(delay: Delay, due_ms: int) -> None:
    assert delay.due_ms(10_000) == due_ms
