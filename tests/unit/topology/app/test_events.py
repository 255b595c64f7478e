"""Events and items of a stream have what their messages have, and are gone with them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from faust.serializers.schemas import Schema
from support.harness.patience import until
from support.nodes.apps import consume, make_app, numbers, running
from support.nodes.local_node import LocalNode

from rocketray.message import Message
from rocketray.topology.app.app import App


class KeyOfTheBody(Schema):  # type: ignore[misc]  # Faust's types are not followed
    """A user's schema, which reads keys in its own way."""

    def loads_key(self, app: Any, message: Any, **options: Any) -> Any:
        return message.value + super().loads_key(app, message, **options)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"value_serializer": "raw"}, lambda sent: sent),
        ({"value_serializer": "raw", "key_type": str}, bytes.decode),
        ({"value_serializer": "raw", "key_serializer": "json"}, int),
        ({"schema": KeyOfTheBody(value_serializer="raw", value_type=bytes)}, b"v".__add__),
    ],
)
def test_events_and_items_have_what_their_messages_have(
    node: LocalNode, options: dict[str, Any], key: Callable[[bytes], Any]
) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", queues=1, **options)
        events: list[Any] = []
        lists: list[Any] = []
        items: list[Any] = []

        @app.agent(topic, name="events")
        async def all_events(stream: Any) -> None:
            async for event in stream.events():
                assert event is stream.current_event
                events.append(event)

        @app.agent(topic, name="lists")
        async def all_lists(stream: Any) -> None:
            async for part in stream.take_events(2, within=0.01):
                lists.extend(part)

        @app.agent(topic, name="items")
        async def all_items(stream: Any) -> None:
            async for item in stream.items():
                items.append(item)  # noqa: PERF401  # one by one, as users write it

        async with running(app):
            for each in (b"1", b"2"):
                await topic.send(
                    key=each, key_serializer="raw", value=b"v", headers={"h": "\u4e2d"}
                )
            await until(lambda: len(events) == len(lists) == len(items) == 2)
        assert items == [(key(each), b"v") for each in (b"1", b"2")]
        for event, stored in zip([*events, *lists], node.stored("T") * 2, strict=True):
            message, sent_key = event.message, stored.properties["__SHARDINGKEY"].encode()
            assert (event.key, event.value, event.stored) == (key(sent_key), b"v", stored)
            assert event.headers == {n: text.encode() for n, text in stored.properties.items()}
            assert event.headers["h"] == "\u4e2d".encode()
            assert message.headers is event.headers
            assert (message.key, message.value, message.topic) == (sent_key, b"v", "T")
            assert (message.partition, message.offset) == (0, stored.queue_offset)
            assert message.timestamp == stored.store_timestamp_ms / 1000
            assert not hasattr(event, "no_part")

    asyncio.run(scenario())


def test_an_event_after_a_filter_has_the_value_before_it(node: LocalNode) -> None:
    seen: list[Any] = []

    async def handler(stream: Any) -> None:
        odd = stream.filter(lambda value: value % 2)
        async for event in odd.events():
            seen.append((event.key, event.value))  # noqa: PERF401  # one by one, as users write it

    consume(node, handler, lambda: len(seen) == 5, bodies=numbers(10), value_serializer="json")
    assert seen == [(None, value) for value in (1, 3, 5, 7, 9)]


def test_messages_go_when_their_handler_has_passed_them(node: LocalNode) -> None:
    """Not with the next commit, up to a million messages later; and without the collector."""
    batches: list[weakref.ref[Any]] = []
    alive: list[int] = []

    async def scenario() -> None:
        app, topic = make_app(node)

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                assert event.headers
                if not batches or batches[-1]() is not event.delivery.shared:
                    batches.append(weakref.ref(event.delivery.shared))
                del event
                alive.append(sum(one() is not None for one in batches))

        async with running(app):
            await until(lambda: len(alive) == 40)

    node.topics.ensure("T", 4)
    with node.producer() as producer:
        for queue_id in range(4):
            producer.send_many("T", [Message("T", b"x")] * 10, queue_id=queue_id)
    gc.collect()
    gc.disable()
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()
    assert len(batches) > 1
    assert set(alive) == {1}
