"""A key with a blank is one key by every door, and found by the text that its user has."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

import rocketray as rr
from rocketray.console.pages.message_pages import _look_up
from rocketray.errors import InvalidMessageError
from rocketray.message import KEYS, SHARDING_KEY, Message
from rocketray.testing import Broker
from rocketray.views.message_links import send_again
from rocketray.views.outgoing import from_json

NAME, STORED = "van Dyck", "van\u00a0Dyck"


class Painter(rr.Record):
    last_name: str


@pytest.fixture
def topic(broker: Broker) -> Broker:
    broker.topics.ensure("T", 1)
    return broker


def found(broker: Broker, key: str) -> list[bytes]:
    by_query = broker.messages.query("T", key)
    assert _look_up(broker.node, "T", "key", key) == by_query, "the console and the command"
    return [message.body for message in by_query]


@pytest.mark.proves(
    "groups",
    "A key with a blank is one key by every door, and is found by its own text",
)
def test_a_key_is_found_whichever_door_it_came_by(topic: Broker) -> None:
    with topic.producer() as producer:
        producer.send("T", b"0", keys=[NAME, "k"])
        producer.send_many("T", [Message("T", b"1", keys=[NAME])])
        producer.send_many("T", bodies=[b"2", b"3"], keys=[["other"], ["x", NAME]])
        table = pa.table({"body": [b"4", b"5"], "keys": [[NAME, "k"], None]})
        producer.send_many("T", table.slice(0, 1))
        producer.send_many("T", pa.table({"body": [b"6"], "keys": [["other one"]]}))
        line = from_json("T", {"text": "7", "keys": [NAME]})
        producer.send_many("T", [line.message])
    assert found(topic, NAME) == [b"0", b"1", b"3", b"4", b"7"]
    assert found(topic, STORED) == found(topic, NAME)
    assert found(topic, "van") == []
    assert found(topic, "k") == [b"0", b"4"]
    message = topic.messages.query("T", NAME)[0]
    assert message.keys == [NAME, "k"]
    assert message.properties[KEYS] == f"{STORED} k", "which RocketMQ takes for two keys"
    assert f"--key={NAME}" in str(send_again(message)).replace("'", "")


def test_a_field_and_the_key_of_an_apps_message(topic: Broker) -> None:
    async def scenario() -> None:
        app = rr.App("app", connection=topic)
        painters = app.topic("T", value_type=Painter, keys=["last_name"])
        async with topic.running(app):
            await painters.send(value=Painter(NAME))
            await painters.send(key="Jan van", value=Painter("Eyck"))
            await topic.settle()

    asyncio.run(scenario())
    assert [message.keys for message in topic.messages.query("T", NAME)] == [[NAME]]
    (second,) = topic.messages.query("T", "Jan van")
    assert second.keys == ["Jan van", "Eyck"]
    assert second.properties[SHARDING_KEY] == "Jan van"
    assert topic.explain(NAME).cause.value == "stored"


def test_a_unique_key_with_a_blank_is_looked_up_as_it_is(topic: Broker) -> None:
    with topic.producer() as producer:
        for body in (b"0", b"1"):
            producer.send_many("T", [Message("T", body, keys=[NAME])])
        producer.send_many("T", [Message("T", b"2", unique_key=NAME)])
    assert [each.body for each in topic.messages.query("T", NAME)] == [b"0", b"1", b"2"]
    assert [each.body for each in topic.messages.query("T", NAME, 2)] == [b"1", b"2"]


def test_rocketmqs_form_is_several_keys_and_one_text_may_be_either(topic: Broker) -> None:
    assert from_json("T", {"text": "", "keys": "k1 k2"}).message.keys == ("k1", "k2")
    with topic.producer() as producer:
        producer.send_many("T", pa.table({"body": [b"0"], "keys": ["k1 k2"]}))
        with pytest.raises(InvalidMessageError, match="one key or several"):
            producer.send("T", b"", keys=NAME)
        with pytest.raises(InvalidMessageError, match="one key or several"):
            producer.send_many("T", bodies=[b""], keys=[NAME])
    assert found(topic, "k2") == [b"0"]
