from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import faust
import pytest
from support.harness.patience import until
from support.nodes.apps import collecting, running
from support.nodes.local_node import LocalNode

from rocketray.errors import (
    ConfigError,
    InvalidMessageError,
    InvalidNameError,
    MessageTooLargeError,
    TopicNotFoundError,
)
from rocketray.message import BODY_MAX_BYTES, SHARDING_KEY, Message
from rocketray.store.retention import KEEP_ALL, RetentionPolicy
from rocketray.topology.app.app import App
from rocketray.topology.values.wire import key_of


class Order(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    order_id: str
    kind: str
    region: str | None = None
    amount: float | None = None


class Other(faust.Record):  # type: ignore[misc]  # as above
    x: int


class Pickled(faust.Record, serializer="pickle"):  # type: ignore[misc, call-arg]  # as above
    x: int


def trade(app: App) -> Any:
    return app.topic(
        "Trade",
        value_type=Order,
        queues=4,
        tag="kind",
        keys=["order_id"],
        properties=["region", "amount"],
    )


ORDER = Order(order_id="o-1", kind="pay", region="eu", amount=120.0)


def test_fields_become_tag_keys_and_properties() -> None:
    message = trade(App("app")).message(b"{}", ORDER)
    assert message.tags == "pay"
    assert list(message.keys) == ["o-1"]
    assert message.properties == {"region": "eu", "amount": "120.0"}


def test_what_is_given_by_hand_wins() -> None:
    message = trade(App("app")).message(
        b"{}", ORDER, tags="order", keys=["k"], properties={"region": "us", "extra": 1}
    )
    assert message.tags == "order"
    assert list(message.keys) == ["k"]
    assert message.properties == {"region": "us", "amount": "120.0", "extra": "1"}


def test_the_key_shards_and_is_a_business_key() -> None:
    message = trade(App("app")).message(b"{}", ORDER, key=b"customer-7")
    assert list(message.keys) == ["customer-7", "o-1"]
    assert message.properties[SHARDING_KEY] == "customer-7"


def test_a_key_with_a_blank_is_one_key_whatever_gives_it() -> None:
    message = App("app").topic("T").message(b"", None, key=b"a b", keys=["a b", "c d"])
    assert list(message.keys) == ["a\u00a0b", "c\u00a0d"]
    assert message.properties == {SHARDING_KEY: "a b"}
    message = trade(App("app")).message(b"", Order(order_id="van Dyck", kind="pay"))
    assert list(message.keys) == ["van\u00a0Dyck"]
    carried = App("app").topic("T").message(b"", None, headers={"KEYS": "van\u00a0Dyck k2"})
    assert list(carried.keys) == ["van\u00a0Dyck", "k2"]


def test_an_empty_key_is_kept_and_orders_as_any_other() -> None:
    message = App("app").topic("T").message(b"", None, key=b"")
    assert message.properties == {SHARDING_KEY: "=", "FAUST_KEY": "empty"}
    assert list(message.keys) == []
    assert key_of(message.properties) == b""
    assert App("app").topic("T").message(b"", None).properties == {}


def test_a_forwarded_event_does_not_carry_the_mark_of_an_empty_key() -> None:
    headers = {SHARDING_KEY: b"=", "FAUST_KEY": b"empty", "region": b"eu"}
    message = App("app").topic("T").message(b"", None, key=b"k", headers=headers)
    assert message.properties == {SHARDING_KEY: "k", "region": "eu"}


def test_headers_become_properties() -> None:
    topic = App("app").topic("T")
    assert topic.message(b"", None, headers={"a": b"1", "b": "2"}).properties == {
        "a": "1",
        "b": "2",
    }


def test_the_headers_of_a_forwarded_event_keep_tag_and_keys() -> None:
    headers = {"TAGS": b"pay", "KEYS": b"k1 k2", "UNIQ_KEY": b"old", "region": b"eu"}
    message = App("app").topic("T").message(b"", None, headers=headers)
    assert message.tags == "pay"
    assert list(message.keys) == ["k1", "k2"]
    assert message.unique_key is None
    assert message.properties == {"region": "eu"}


def test_the_timestamp_is_the_birth() -> None:
    assert App("app").topic("T").message(b"", None, timestamp=1.5).born_timestamp_ms == 1500


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"tags": "a || b"}, InvalidMessageError, "can never be matched"),
        ({"keys": "a b"}, InvalidMessageError, r"one key or several.*\['a b'\] or \['a', 'b'\]"),
        ({"keys": [""]}, InvalidMessageError, "a key is empty"),
        ({"properties": {"a": [1]}}, InvalidMessageError, "property 'a' is a list"),
        ({"headers": {"a": b"\xff"}}, InvalidMessageError, "not UTF-8"),
        ({"key": b"\xff"}, InvalidMessageError, "the key is bytes that are not UTF-8"),
        ({"properties": {"a": "x" * 40_000}}, MessageTooLargeError, "limit of 32767"),
    ],
)
def test_a_message_that_cannot_be_stored_is_refused_where_it_is_made(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        App("app").topic("T").message(b"", None, **arguments)


def test_a_body_over_the_limit_is_refused() -> None:
    with pytest.raises(MessageTooLargeError):
        App("app").topic("T").message(b"x" * (BODY_MAX_BYTES + 1), None)


@pytest.mark.parametrize("name", ["has.dot", "a/b", "", "x" * 128])
def test_names_are_checked(name: str) -> None:
    with pytest.raises(InvalidNameError):
        App("app").topic(name)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pattern": "a("}, "pattern 'a\\('"),
        ({"quues": 3}, "no option quues=; did you mean queues="),
        ({"queues": 0}, "1 to 1024 queues"),
        ({"value_type": Order, "tag": "colour"}, "no field 'colour'"),
        ({"value_serializer": "pickle"}, "asks for pickle"),
        ({"value_serializer": "pickle|binary"}, "asks for pickle"),
        ({"key_serializer": "pickle"}, "the key of topic 'T' asks for pickle"),
        ({"value_type": Pickled}, "asks for pickle"),
        ({"value_serializer": "jsn"}, "'jsn', which is not registered"),
    ],
)
def test_what_a_topic_cannot_be_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        App("app").topic(*([] if "pattern" in options else ["T"]), **options)


@pytest.mark.parametrize("option", ["key_type", "value_type"])
@pytest.mark.parametrize(
    ("given", "instead"),
    [(ORDER, "=Order"), ([Order], "a subclass of rr.Record"), ("Order", "a subclass of rr.Record")],
)
def test_a_type_that_is_no_class_is_refused(option: str, given: Any, instead: str) -> None:
    with pytest.raises(ConfigError, match=f"'T': {option} is .* not a class; give .*{instead}$"):
        App("app").topic("T", **{option: given})


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (Order, 3),
        (Order, Order(order_id="o", kind="pay", amount=float("nan"))),
        (bytes, None),  # a consumer would get b""
        (Order, [ORDER]),
        (Order, {"order_id": "o-1"}),  # no kind
        (Order, Other(x=1)),
        (int, "three"),
        (str, 0),
    ],
)
def test_a_value_that_no_consumer_could_decode_is_refused(value_type: Any, value: Any) -> None:
    topic = App("app").topic("T", value_type=value_type)
    with pytest.raises(InvalidMessageError, match=r"topic '?T'?: "):
        asyncio.run(topic.send(value=value))


@pytest.mark.parametrize(
    ("value_type", "value", "options"),
    [
        (Order, ORDER, {}),
        (Order, {"order_id": "o-1", "kind": "pay"}, {}),
        (Order, b"serialized", {}),
        (Order, "text", {"value_serializer": "raw"}),
        (int, 3.5, {}),  # as Faust, which takes the integer
        (Order, None, {"key": "o-1"}),  # a tombstone
        (None, 3, {}),
    ],
)
def test_a_value_that_a_consumer_may_decode_is_sent(
    node: LocalNode, value_type: Any, value: Any, options: dict[str, Any]
) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_type=value_type, queues=1)
        assert (await (await topic.send(value=value, **options))).offset == 0
        await app.stop()

    asyncio.run(scenario())


def test_bytes_and_text_are_raw() -> None:
    assert App("app").topic("T", value_type=bytes).schema.value_serializer == "raw"
    assert App("app").topic("T", value_type=str, key_type=str).schema.key_serializer == "raw"
    assert App("app").topic("T", value_type=dict).schema.value_serializer is None


def test_a_clone_keeps_what_the_topic_says() -> None:
    topic = trade(App("app"))
    assert topic.clone().fields == topic.fields
    assert topic.clone().partitions == 4


def test_putting_events_by_hand_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot be put into topic T"):
        asyncio.run(App("app").topic("T").put(object()))


@pytest.mark.proves("faust", "`app.topic()` with types, serializers, retention: differs")
def test_sending_makes_the_topic_and_tells_where_the_message_is(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_type=bytes, queues=3)
        called: list[Any] = []
        first = await (await topic.send(value=b"1", partition=2, callback=called.append))
        second = await (await topic.send(value=b"2", partition=2))
        assert (first.topic, first.partition, first.offset) == ("T", 2, 0)
        assert second.offset == 1
        assert node.topics.get("T").queues == 3
        assert [one.result() for one in called] == [first]
        await app.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(("declared", "is_said"), [(4, True), (2, False), (None, False)])
def test_a_topic_with_fewer_queues_than_the_app_declares_is_said(
    declared: int | None, is_said: bool, node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        await app.topic("T", value_type=bytes, queues=declared).send(value=b"1")
        await app.stop()

    node.topics.ensure("T", 2)
    asyncio.run(scenario())
    said = "topic T has 2 queues, and the app declares 4; give it more with: rocketray topics alter"
    assert (said in caplog.text) is is_said


def test_one_key_goes_to_one_queue_in_order(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", key_type=str, value_type=bytes, queues=4)
        sent = [
            await topic.send(key=f"k{number % 5}", value=b"%d" % number) for number in range(100)
        ]
        places = [await one for one in sent]
        for key in range(5):
            of_key = places[key::5]
            assert len({place.partition for place in of_key}) == 1
            assert [p.offset for p in of_key] == sorted(p.offset for p in of_key)
        await app.stop()

    asyncio.run(scenario())


def test_a_selector_chooses_the_queue(node: LocalNode) -> None:
    app = App("app", connection=node)
    topic = app.topic("Trade", queues=4, value_serializer="raw")

    def by_size(queues: int, message: Message) -> int:
        return len(message.body) % queues

    async def main() -> None:
        await app.start()
        for size in range(8):
            sent = await topic.send(value=b"x" * size, key="k", queue_selector=by_size)
            assert (await sent).partition == size % 4
        later = await topic.send(value=b"x", queue_selector=by_size, delay=3600)
        assert (await later).recall_handle
        with pytest.raises(ConfigError, match="give one"):
            await topic.send(value=b"", queue_selector=by_size, partition=0)
        with pytest.raises(ConfigError, match="chose 4 for a message of topic 'Trade'"):
            await topic.send(value=b"", queue_selector=lambda queues, _: queues)
        await app.stop()

    asyncio.run(main())
    assert len(node.stored("Trade")) == 8


def test_a_selector_has_nothing_to_choose_from_without_a_topic(node: LocalNode) -> None:
    app = App("app", connection=node, topic_allow_declare=False)
    topic = app.topic("Absent", value_serializer="raw")

    async def main() -> None:
        with pytest.raises(TopicNotFoundError):
            await topic.send(value=b"", queue_selector=lambda queues, _: queues)

    asyncio.run(main())


@pytest.mark.proves("faust", "`event.forward()`, `event.send()`: works")
def test_an_event_can_be_forwarded(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        source = app.topic("T", value_type=bytes, queues=1)
        target = app.topic("U", value_type=bytes, queues=1)
        arrived: list[Any] = []

        @app.agent(source)
        async def forward(stream: Any) -> None:
            async for event in stream.events():
                await event.forward(target)

        @app.agent(target, tags="pay")
        async def collect(stream: Any) -> None:
            async for event in stream.events():
                arrived.append(event)  # noqa: PERF401

        async with running(app):
            await source.send(
                key=b"k", value=b"1", tags="pay", keys=["o-1"], properties={"region": "eu"}
            )
            await until(lambda: arrived)
        (event,) = arrived
        assert (event.key, event.value) == (b"k", b"1")
        assert event.headers["KEYS"] == b"k o-1"
        assert event.headers["region"] == b"eu"

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`topic.send()`, `send_soon()`, `app.send()`: works")
def test_app_send_and_send_soon(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_type=bytes, queues=1)
        seen: list[bytes] = []

        app.agent(topic, name="reader")(collecting(seen))

        async with running(app):
            await app.send(topic, value=b"1")
            topic.send_soon(value=b"2", headers={"a": b"b"})
            await until(lambda: len(seen) == 2)

    asyncio.run(scenario())


def test_a_message_type_of_our_own_is_what_is_made() -> None:
    assert isinstance(App("app").topic("T").message(b"", None), Message)


@pytest.mark.parametrize(
    ("retention", "policy"),
    [
        (None, KEEP_ALL),
        (90, RetentionPolicy(max_age_ms=90_000)),
        (0.5, RetentionPolicy(max_age_ms=500)),
        (timedelta(hours=72), RetentionPolicy(max_age_ms=259_200_000)),
    ],
)
def test_a_topic_is_made_with_its_retention_by_whoever_uses_it_first(
    node: LocalNode, retention: Any, policy: RetentionPolicy
) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        await app.topic("Sent", retention=retention).send(value={"x": 1})
        await app.topic("Declared", retention=retention).declare()
        app.agent(app.topic("Read", retention=retention), name="reader")(collecting([]))
        async with running(app):
            pass

    asyncio.run(scenario())
    assert [node.topics.get(name).retention for name in ("Sent", "Declared", "Read")] == 3 * [
        policy
    ]


def test_a_topic_is_made_with_its_acknowledgement_and_an_existing_one_keeps_its_own(
    node: LocalNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.topics.create("Old", 1)

    async def scenario() -> None:
        app = App("app", connection=node)
        for name in ("New", "Old"):
            await app.topic(name, ack="disk").declare()

    asyncio.run(scenario())
    assert [node.topics.get(name).ack for name in ("New", "Old")] == ["disk", None]
    [said] = [one.getMessage() for one in caplog.records if "declares ack" in one.getMessage()]
    assert said == (
        "topic Old acknowledges as its node says, and the app declares ack='disk'; change it with: "
        "rocketray topics alter Old --ack disk"
    )


def test_an_acknowledgement_that_is_none_or_that_differs_is_refused(node: LocalNode) -> None:
    app = App("app", connection=node)
    with pytest.raises(ConfigError, match="'fsync' is not 'memory' or 'disk'"):
        app.topic("T", ack="fsync")  # type: ignore[arg-type]
    app.topic("T", ack="disk")
    app.topic("T")
    with pytest.raises(ConfigError, match="ack='disk' and with ack='memory'"):
        app.topic("T", ack="memory")


@pytest.mark.parametrize("retention", [0, -1, timedelta(0), "72h", True])
def test_a_retention_that_keeps_nothing_is_refused(node: LocalNode, retention: Any) -> None:
    with pytest.raises(ConfigError, match="retention"):
        App("app", connection=node).topic("T", retention=retention)


@pytest.mark.proves("faust", "JSON: differs")
def test_a_tombstone_and_an_empty_key_arrive(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", value_type=Order, key_type=str, queues=4, tag="kind")
        source = app.topic("In", queues=1)
        table = app.Table("counts", default=int, partitions=4)
        arrived: list[tuple[Any, Any, int]] = []

        @app.agent(topic)
        async def collect(stream: Any) -> None:
            async for event in stream.events():
                table[event.key] += 1
                arrived.append((event.key, event.value, event.message.partition))

        @app.agent(source)
        async def grouped(stream: Any) -> None:
            async for _ in stream.group_by(lambda value: value["country"], name="country"):
                arrived.append(("", None, -1))  # noqa: PERF401

        async with running(app):
            for _ in range(4):
                await topic.send(key="", value=None)
            await until(lambda: len(arrived) == 4)
            assert {(key, value) for key, value, _ in arrived} == {("", None)}
            assert len({queue for *_, queue in arrived}) == 1
            assert table[""] == 4
            await source.send(value={"country": ""})
            await until(lambda: len(arrived) == 5)

    asyncio.run(scenario())
