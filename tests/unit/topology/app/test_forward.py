"""A message that is forwarded as it is stored equals one that Faust's event forwards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from faust.events import Event
from support.harness.patience import until
from support.nodes.apps import make_app, running
from support.nodes.local_node import LocalNode

from rocketray.message import SHARDING_KEY, UNIQUE_KEY, Message, StoredMessage
from rocketray.topology.app.app import App

SENT = [
    Message("T", b"plain"),
    Message("T", b"all", "pay", ["k1", "k 2"], {"region": "eu", "é": "日本", SHARDING_KEY: "c7"}),
    Message("T", b"", properties={SHARDING_KEY: "=", "FAUST_KEY": "empty", "a": "1"}),
    Message("T", b"keyed", keys=["k1"], unique_key="own", flag=3, born_timestamp_ms=1),
    Message("T", b"marked", properties={"IMPORTED_OFFSET_ID": "x", "traceparent": "00-1"}),
]


def parts(stored: StoredMessage) -> tuple[bytes, dict[str, str]]:
    properties = dict(stored.properties)
    assert properties.pop(UNIQUE_KEY)
    return bytes(stored.body), properties


@pytest.mark.proves("faust", "`event.forward()`, `event.send()`: works")
@pytest.mark.parametrize(
    "options", [{}, {"key": "k"}, {"key": b""}, {"value": b"v"}, {"partition": 0}, {"headers": {}}]
)
@pytest.mark.parametrize("is_signed", [False, True])
def test_a_forwarded_message_is_what_faust_forwards(
    node: LocalNode, options: dict[str, Any], is_signed: bool
) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        raw: dict[str, Any] = {"value_serializer": "raw", "queues": 1}
        ours, fausts = app.topic("Ours", **raw), app.topic("Fausts", **raw)
        seen: list[Any] = []

        def sign(*_: Any, headers: list[Any], **__: Any) -> None:
            assert all(isinstance(value, bytes) for _, value in headers)
            headers.append(("signed", b"yes"))

        if is_signed:
            app.on_produce_message.connect(sign)

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                await event.forward(ours, **options)
                is_copied = is_signed or not options.keys() <= {"key"}
                assert event._is_open is is_copied
                await Event.forward(event, fausts, **options)
                seen.append(event)

        async with running(app):
            node.producer().send_many("T", SENT)
            await until(lambda: len(seen) == len(SENT))
        app.on_produce_message.disconnect(sign)

    asyncio.run(scenario())
    sent = [[parts(one) for one in node.stored(name)] for name in ("Ours", "Fausts")]
    assert len(sent[0]) == len(SENT)
    assert sent[0] == sent[1]
    assert all(("signed" in properties) is is_signed for _, properties in sent[0])


def test_what_a_handler_changed_of_an_event_goes_with_it(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        target = app.topic("Out", value_serializer="raw", queues=1)

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                event.headers["seen"] = b"yes"
                await event.forward(target)

        async with running(app):
            await topic.send(key="k", value=b"m")
            await until(lambda: "Out" in node.topics.all() and node.stored("Out"))

    asyncio.run(scenario())
    assert node.stored("Out")[0].properties["seen"] == "yes"


@pytest.mark.parametrize("name", ["Out", "memory"])
def test_a_topic_is_forwarded_to_by_its_name_and_a_channel_by_itself(
    node: LocalNode, name: str
) -> None:
    arrived: list[Any] = []

    async def scenario() -> None:
        app: App
        app, topic = make_app(node)
        channel = app.channel() if name == "memory" else name
        app.topic("Out", queues=1)

        @app.agent(app.topic("Out", value_serializer="raw") if name == "Out" else channel)
        async def last(stream: Any) -> None:
            async for value in stream:
                arrived.append(value)  # noqa: PERF401

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                await event.forward(channel)

        async with running(app):
            await topic.send(value=b"m")
            await until(lambda: arrived)

    asyncio.run(scenario())
    assert arrived == [b"m"]
