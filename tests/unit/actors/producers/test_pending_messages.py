"""Messages whose results are asked for again and again: each is stored once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rocketray.delay import Delay
from rocketray.errors import ShardUnavailableError, StoreFullError
from rocketray.message import Message
from rocketray.testing import Broker
from rocketray.testing.fixtures import broker, clock

__all__ = ["broker", "clock"]

Begin = Callable[[Any, list[Message]], Any]


def at_once(producer: Any, messages: list[Message]) -> Any:
    return producer.begin_messages("T", messages)


def delayed(producer: Any, messages: list[Message]) -> Any:
    due = Delay(deliver_at_ms=1)
    return producer.begin_delayed([(message, due) for message in messages])


def make(broker: Broker) -> list[Message]:
    """Six messages, and a topic of two queues; those of both keys are in queues of their own."""
    broker.create_topic("T", 2)
    return [
        Message("T", b"%d" % number, properties={"__SHARDINGKEY": "ab"[number % 2]})
        for number in range(6)
    ]


def stored(broker: Broker) -> list[list[bytes]]:
    return [
        [one.body for one in broker.shards["T", queue].writer.store.reads.scan()]
        for queue in (0, 1)
    ]


@pytest.mark.parametrize("begin", [at_once, delayed])
def test_what_no_answer_came_for_is_asked_for_and_not_sent_anew(
    broker: Broker, begin: Begin
) -> None:
    messages = make(broker)
    with broker.producer() as producer:
        sent = begin(producer, messages)
        broker.lose_acks(5, "T", 1)
        for _ in range(3):  # three calls at first, and then one each time
            with pytest.raises(ShardUnavailableError):
                sent.results()
        results = sent.results()
    assert sorted(stored(broker)) == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]
    places = [(result.queue_id, result.queue_offset) for result in results]
    for number, (queue, offset) in enumerate(places):
        assert stored(broker)[queue][offset] == b"%d" % number


@pytest.mark.parametrize("begin", [at_once, delayed])
def test_what_a_shard_did_not_store_is_sent_again_and_the_rest_is_not(
    broker: Broker, begin: Begin
) -> None:
    messages = make(broker)
    with broker.producer() as producer:
        sent = begin(producer, messages)
        broker.fail_appends(2, "T", 0)
        for _ in range(2):
            with pytest.raises(ShardUnavailableError, match="could not store"):
                sent.results()
        assert len(sent.results()) == 6
    assert sorted(stored(broker)) == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]


def test_what_is_refused_for_good_is_not_sent_again(broker: Broker) -> None:
    messages = make(broker)
    with broker.producer() as producer:
        sent = at_once(producer, messages)
        with broker.disk_full(), pytest.raises(StoreFullError):
            sent.results()
        with pytest.raises(StoreFullError):
            sent.results()
    assert stored(broker) == [[], []]


@pytest.mark.parametrize("fault", ["fail_appends", "lose_acks"])
def test_what_comes_after_a_message_that_is_not_stored_waits_for_it(
    broker: Broker, fault: str
) -> None:
    broker.create_topic("T", 1)
    bodies = [letter * 300_000 for letter in (b"1", b"2", b"3", b"4")]  # two go together
    with broker.producer() as producer:
        sent = producer.begin_messages("T", [Message("T", body) for body in bodies], queue_id=0)
        getattr(broker, fault)(3, "T", 0)
        for _ in range(10):
            try:
                results = sent.results()
            except ShardUnavailableError:
                continue
            break
    assert [one.body for one in broker.shards["T", 0].writer.store.reads.scan()] == bodies
    assert [result.queue_offset for result in results] == [0, 1, 2, 3]


def test_the_topic_where_delayed_messages_wait_is_made_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages, made, create = make(broker), [], broker.create_topic

    def create_topic(topic: str, queues: int = 1) -> object:
        made.append(topic)
        return create(topic, queues)

    monkeypatch.setattr(broker, "create_topic", create_topic)
    with broker.producer() as producer:
        producer.send_delayed([(message, Delay(level=5)) for message in messages])
    assert len(made) == 1
