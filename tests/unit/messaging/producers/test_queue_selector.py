"""A program chooses the queue of a message itself, as RocketMQ's MessageQueueSelector does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.nodes.local_node import LocalNode

from rocketray.base.marks import REAL_QUEUE_ID
from rocketray.base.system_topics import TIMER_TOPIC
from rocketray.errors import ConfigError, TopicNotFoundError
from rocketray.message import SHARDING_KEY, Message

QUEUES = 3


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as local:
        local.topics.ensure("T", QUEUES)
        yield local


def by_customer(queues: int, message: Message) -> int:
    return int(message.properties["customer"]) % queues


def stored(node: LocalNode) -> dict[int, list[bytes]]:
    queues: dict[int, list[bytes]] = {queue: [] for queue in range(QUEUES)}
    for message in node.stored("T"):
        queues[message.queue_id].append(message.body)
    return queues


@pytest.mark.proves("producers", "Every way to send calls the queue selector, and keeps the order")
def test_each_way_to_send_asks_the_selector_and_keeps_the_order(node: LocalNode) -> None:
    with node.producer() as producer:
        for number in range(9):
            customer = {"customer": str(number)}
            body = b"%d" % number
            if number % 3 == 0:
                sent = producer.send("T", body, properties=customer, queue_selector=by_customer)
                assert sent.queue_id == 0
            elif number % 3 == 1:
                producer.send_async("T", body, properties=customer, queue_selector=by_customer)
            else:
                producer.send_oneway("T", body, properties=customer, queue_selector=by_customer)
        messages = [
            Message("T", b"%d" % number, properties={"customer": str(number)})
            for number in range(9, 4000)
        ]
        results = producer.send_many("T", messages, queue_selector=by_customer)
        assert [result.queue_id for result in results] == [n % QUEUES for n in range(9, 4000)]
    assert stored(node) == {
        queue: [b"%d" % number for number in range(queue, 4000, QUEUES)] for queue in range(QUEUES)
    }


@pytest.mark.proves("producers", "The selector gets the number of queues and the message")
def test_it_sees_the_number_of_queues_and_the_whole_message(node: LocalNode) -> None:
    seen: list[tuple[int, Message]] = []

    def select(queues: int, message: Message) -> int:
        seen.append((queues, message))
        return np.int64(2)  # type: ignore[return-value]  # as arithmetic with NumPy gives it

    with node.producer() as producer:
        sent = producer.send(
            "T", b"b", tags="t", keys=["k"], properties={"p": "1"}, queue_selector=select
        )
        delayed = producer.send("T", b"b", queue_selector=select, delay_level=18)
    assert sent.queue_id == 2
    assert delayed.recall_handle is not None
    assert seen[0] == (QUEUES, Message("T", b"b", "t", ["k"], {"p": "1"}))


def test_delayed_messages_go_where_it_says(node: LocalNode) -> None:
    messages = [
        Message("T", b"", properties={"customer": str(number), SHARDING_KEY: "k"})
        for number in range(2 * QUEUES)
    ]
    with node.producer() as producer:
        results = producer.send_many("T", messages, delay=3600, queue_selector=by_customer)
        assert all(result.recall_handle for result in results)
        with pytest.raises(ConfigError, match="give one"):
            producer.send_many("T", messages, delay=3600, queue_id=0, queue_selector=by_customer)
        with pytest.raises(ConfigError, match="nothing was sent"):
            producer.send_many(
                "T",
                messages,
                delay=3600,
                queue_selector=lambda _, one: -int(one.properties["customer"]),
            )
    waiting = [one.properties[REAL_QUEUE_ID] for one in node.stored(TIMER_TOPIC)]
    assert waiting == [str(number % QUEUES) for number in range(2 * QUEUES)]


@pytest.mark.proves("producers", "If the selector returns an invalid queue, nothing is sent")
@pytest.mark.parametrize("choice", [-1, QUEUES, 2**70, 1.0, "1", None])
def test_a_choice_that_is_no_queue_sends_nothing(node: LocalNode, choice: Any) -> None:
    def select(_queues: int, message: Message) -> Any:
        return choice if message.body == b"bad" else 0

    with node.producer() as producer:
        with pytest.raises(ConfigError, match=r"the queues 0 to 2; nothing was sent"):
            producer.send("T", b"bad", queue_selector=select)
        with pytest.raises(ConfigError, match=r"the queues 0 to 2; nothing was sent"):
            producer.send_many(
                "T", [*[Message("T", b"good")] * 2000, Message("T", b"bad")], queue_selector=select
            )
    assert node.stored("T") == []


def test_what_a_selector_raises_is_raised_and_nothing_is_sent(node: LocalNode) -> None:
    with node.producer() as producer:
        with pytest.raises(KeyError, match="customer"):
            producer.send("T", b"b", queue_selector=by_customer)
        with pytest.raises(TopicNotFoundError):
            producer.send("Nowhere", b"b", queue_selector=by_customer)
    assert node.stored("T") == []


@pytest.mark.proves("producers", "A selector together with another choice of queue is refused")
def test_a_message_has_one_choice(node: LocalNode) -> None:
    select = by_customer
    with node.producer() as producer:
        for other in ({"queue_id": 0}, {"sharding_key": "a"}):
            with pytest.raises(ConfigError, match="give one"):
                producer.send("T", b"b", queue_selector=select, **other)
        with pytest.raises(ConfigError, match="give one"):
            producer.send_many("T", [Message("T", b"b")], queue_id=0, queue_selector=select)
