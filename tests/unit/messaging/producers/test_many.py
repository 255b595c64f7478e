"""Sends of many messages: bodies that share their parts, and which queue a list goes to."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from rocketray.errors import (
    ConfigError,
    InvalidMessageError,
    MessageTooLargeError,
    StreamError,
)
from rocketray.message import SHARDING_KEY, Message
from rocketray.testing import Broker
from rocketray.testing.fixtures import broker, clock

__all__ = ["broker", "clock"]

SHARED: list[dict[str, Any]] = [
    {},
    {"tags": "pay"},
    {"tags": "pay", "keys": "k"},
    {"properties": {"a": "b"}},
    {"tags": "pay", "keys": "k", "properties": {"a": "b", SHARDING_KEY: "x"}},
]
EACH = range(2500)
COLUMNS: list[dict[str, Any]] = [
    {"tags": ["pay" if number % 2 else None for number in EACH]},
    {"keys": [f"order-{number}" for number in EACH], "tags": "pay"},
    {"keys": [[f"a{number}", "all"][: number % 3] for number in EACH]},
    {"properties": {"region": "eu", "number": [str(number) for number in EACH]}},
    {"properties": {"rare": ["yes" if number % 97 == 0 else None for number in EACH]}},
    {"properties": {SHARDING_KEY: [f"k{number % 50}" for number in EACH]}},
    {"properties": {SHARDING_KEY: [f"k{number}" if number % 3 else None for number in EACH]}},
]


@pytest.mark.proves(
    "producers",
    "`send_many` stores columns like the messages of their rows, byte for byte",
)
@pytest.mark.parametrize("shared", SHARED)
def test_bodies_are_stored_as_messages_that_have_the_same_parts(
    broker: Broker, shared: dict[str, Any]
) -> None:
    bodies = [b"%d" % number * (number % 7) for number in range(2500)]
    broker.topics.ensure("T", 3)
    with broker.producer() as producer:
        results = producer.send_many("T", bodies=bodies, **shared)
        listed = producer.send_many("T", [Message("T", body, **shared) for body in bodies])
    assert len(results) == sum(results.queues.values()) == len(bodies)
    for index in (*range(0, 2500, 97), 1023, 1024, 2499):
        one = broker.messages.view(results[index].offset_message_id)
        other = broker.messages.view(listed[index].offset_message_id)
        assert one is not None
        assert other is not None
        assert one.unique_key == results[index].message_id != other.unique_key
        own = {"UNIQ_KEY": other.unique_key}
        assert {**one.properties, **own} == other.properties
        assert (one.body, one.tags, one.keys) == (bodies[index], other.tags, other.keys)
        if index in {0, 1023, 2499}:  # each query finds all messages
            for key in one.keys:
                assert one in broker.messages.query("T", key, 10_000)


def of_message(columns: dict[str, Any], number: int) -> dict[str, Any]:
    """What the message of that number has of the columns."""

    def entry(column: Any) -> Any:
        return column if isinstance(column, str) else column[number]

    found = {name: entry(columns[name]) for name in ("tags", "keys") if name in columns}
    properties = {name: entry(texts) for name, texts in columns.get("properties", {}).items()}
    return found | {"properties": {name: text for name, text in properties.items() if text}}


@pytest.mark.proves(
    "producers",
    "`send_many` stores columns like the messages of their rows, byte for byte",
)
@pytest.mark.parametrize("columns", COLUMNS, ids="-".join)
def test_columns_are_stored_as_the_messages_of_their_rows(
    broker: Broker, columns: dict[str, Any]
) -> None:
    bodies = [b"%d" % number * (number % 7) for number in EACH]
    for topic in ("T", "U"):
        broker.topics.ensure(topic, 3)
    with broker.producer() as one, broker.producer() as other:
        results = one.send_many("T", bodies=bodies, **columns)
        messages = [Message("U", bodies[at], **of_message(columns, at)) for at in EACH]
        listed = other.send_many("U", messages)
    assert [at.queue_id for at in results] == [at.queue_id for at in listed]
    mine, others = broker.stored("T"), broker.stored("U")
    assert len(mine) == len(others) == len(bodies)
    for ours, theirs in zip(mine, others, strict=True):
        assert (ours.body, ours.queue_id) == (theirs.body, theirs.queue_id)
        own = {"UNIQ_KEY": theirs.unique_key}
        assert [*({**ours.properties, **own}.items())] == [*theirs.properties.items()]
    if "keys" in columns:
        assert broker.messages.query("T", "order-7") or broker.messages.query("T", "a7")


def test_columns_may_be_delayed_or_selected_one_by_one(broker: Broker) -> None:
    broker.topics.ensure("T", 4)
    columns: dict[str, Any] = {"bodies": [b"1", b"2"], "tags": ["a", "b"], "keys": ["k", None]}
    with broker.producer() as producer:
        producer.send_many("T", **columns, delay=5)
        sent = producer.send_many("T", **columns, queue_selector=lambda _, one: len(one.keys))
        assert [one.queue_id for one in sent] == [1, 0]
        broker.clock.advance(seconds=6)
        stored = [(one.body, one.tags, one.keys) for one in broker.stored("T")]
        assert sorted(stored) == 2 * [(b"1", "a", ["k"])] + 2 * [(b"2", "b", [])]
        assert len(producer.begin_many("T", **columns, queue_id=2).result()) == 2


def test_one_choice_of_a_queue_is_for_all(broker: Broker) -> None:
    broker.topics.ensure("T", 4)
    rows = pa.table({"body": [b"x"] * 9000})
    messages = [Message("T", b"x")] * 2000
    with broker.producer() as producer:
        for content in ({"messages": rows}, {"messages": messages}, {"bodies": [b"x"] * 2000}):
            sent = producer.send_many("T", **content, queue_id=3)
            assert set(sent.queues) == {3}
            sent = producer.send_many("T", **content, sharding_key="k")
            assert set(sent.queues) == {producer.links.choose_queue("T", sharding_key="k")}


def test_a_sharding_key_is_stored_with_each_message(broker: Broker) -> None:
    broker.topics.ensure("T", 4)
    own = {"a": "b", SHARDING_KEY: "own"}
    listed = [Message("T", b"x", properties=own), Message("T", b"y")]
    tables: list[dict[str, Any]] = [
        {"messages": pa.table({"body": [b"x", b"y"]})},
        {"messages": pa.record_batch({"body": [b"x", b"y"]})},
        {
            "messages": pa.table(
                {"body": [b"x", b"y"], "a": ["b", None], SHARDING_KEY: ["own"] * 2}
            ),
            "property_columns": ["a", SHARDING_KEY],
        },
    ]
    lists: list[dict[str, Any]] = [
        {"messages": listed},
        {"bodies": [b"x", b"y"]},
        {"bodies": [b"x", b"y"], "properties": own},
        {"bodies": [b"x", b"y"], "delay": 1},
        {"messages": listed, "delay": 1},
    ]
    with broker.producer() as producer:
        queue_id = producer.links.choose_queue("T", sharding_key="k")
        for content in (*tables, *lists):
            producer.send_many("T", **content, sharding_key="k")
            producer.send_many("T", **content, sharding_key="k", queue_id=0)
        broker.clock.advance(seconds=2)
        stored = broker.stored("T")
        assert len(stored) == 4 * len((*tables, *lists))
        assert {one.properties[SHARDING_KEY] for one in stored} == {"k"}
        assert {one.queue_id for one in stored} == {queue_id, 0}
        assert sum(one.properties.get("a") == "b" for one in stored) == 10
        assert dict(listed[0].properties) == own, "the caller's messages stay as they are"
        with pytest.raises(ConfigError, match="sharding_key is 5"):
            producer.send_many("T", listed, sharding_key=5)  # type: ignore[arg-type]


@pytest.mark.proves(
    "producers",
    "An error about a message of a list or of columns has its number, and nothing is sent",
)
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (Message("T", b"", "\ud800"), InvalidMessageError),
        (Message("T", b"", properties={"a": "x" * 40_000}), MessageTooLargeError),
    ],
)
def test_nothing_is_sent_of_a_list_with_a_message_that_cannot_be_stored(
    broker: Broker, wrong: Message, error: type[StreamError]
) -> None:
    broker.topics.ensure("T", 2)
    with broker.producer() as producer, pytest.raises(error, match=r"^message 2000: topic 'T': "):
        producer.send_many("T", [*[Message("T", b"x")] * 2000, wrong])
    assert broker.stored("T") == []


def test_a_list_may_have_no_result(broker: Broker) -> None:
    broker.topics.ensure("T", 2)
    with broker.producer() as producer:
        producer.send_many_oneway("T", bodies=[b"x"] * 2000)
        producer.flush()
        assert len(broker.stored("T")) == 2000
        with broker.faults.disk_full():
            producer.send_many_oneway("T", [Message("T", b"x")] * 30)
        assert producer.one_way_lost == 30
        assert len(producer.send_many("T", [])) == 0
        assert len(producer.send_many("T", bodies=[])) == 0


def test_bodies_may_be_delayed(broker: Broker) -> None:
    broker.topics.ensure("T", 2)
    with broker.producer() as producer:
        sent = producer.send_many("T", bodies=[b"1", b"2"], tags="t", delay=5)
        assert all(one.recall_handle for one in sent)
        assert broker.stored("T") == []
        broker.clock.advance(seconds=6)
    assert sorted((one.body, one.tags) for one in broker.stored("T")) == [
        (b"1", "t"),
        (b"2", "t"),
    ]
