"""Topics that only the node stores messages in: programs may not send to them, the node does."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from rocketray.base.delay import Delay
from rocketray.base.system_topics import (
    END_TOPIC,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    is_closed_topic,
)
from rocketray.errors import InvalidMessageError
from rocketray.message import Message
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.testing import Broker
from rocketray.testing.fixtures import broker, clock

__all__ = ["broker", "clock"]

CLOSED = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, END_TOPIC, GIVEN_UP_TOPIC)
SENDS: dict[str, Callable[[NodeProducer, str], object]] = {
    "send": lambda producer, topic: producer.send(topic, b"x"),
    "send_async": lambda producer, topic: producer.send_async(topic, b"x"),
    "without a result": lambda producer, topic: producer.send_oneway(topic, b"x"),
    "with its own id": lambda producer, topic: producer.send_async(topic, b"x", unique_key="u"),
    "a list": lambda producer, topic: producer.send_many(topic, [Message(topic, b"x")]),
    "a table": lambda producer, topic: producer.send_many(topic, pa.table({"body": [b"x"]})),
    "bodies": lambda producer, topic: producer.send_many(topic, bodies=[b"x"]),
    "delayed": lambda producer, topic: producer.send(topic, b"x", delay_level=1),
    "a delayed list": lambda producer, topic: producer.send_many(
        topic, [Message(topic, b"x")], delay=1
    ),
    "a delay each": lambda producer, topic: producer.begin_many(
        topic, [Message(topic, b"x")], delays=[Delay(delay_ms=1000)]
    ),
}


@pytest.mark.proves("producers", "No way to send writes to a system topic")
@pytest.mark.parametrize("topic", CLOSED)
def test_no_way_of_sending_reaches_a_topic_of_the_nodes_own(broker: Broker, topic: str) -> None:
    broker.topics.ensure("orders", 1)
    broker.topics.ensure(topic, 18)
    with broker.producer() as producer:
        producer.send("orders", b"later", delay_level=18)  # the producer knows the way by now
        before = broker.stored(topic)
        for way, send in SENDS.items():
            with pytest.raises(InvalidMessageError, match=f"{topic}.* is a system topic"):
                send(producer, topic)
            assert broker.stored(topic) == before, way
    assert broker.stored(topic) == before


@pytest.mark.parametrize("topic", ["%RETRY%shop", "%DLQ%shop", "orders", "TBW102"])
def test_other_topics_are_open_as_they_are_with_rocketmq(topic: str) -> None:
    assert not is_closed_topic(topic)


@pytest.mark.parametrize("topic", [*CLOSED, "rmq_sys_own", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"])
def test_what_rocketmq_refuses_and_what_a_node_keeps_for_itself_is_closed(topic: str) -> None:
    assert is_closed_topic(topic)
