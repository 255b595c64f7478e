"""What stock Faust's user guide shows and no other file of these tests does."""

from __future__ import annotations

import asyncio
from typing import Any

import faust
import pytest
from support.harness.patience import until
from support.nodes.apps import collecting, make_app, running
from support.nodes.local_node import LocalNode

from rocketray.topology.app.app import App


class Order(faust.Record):  # type: ignore[misc]  # Faust's types are not followed
    user: str
    amount: int = 0


class Shape(faust.Record, polymorphic_fields=True):  # type: ignore[misc, call-arg]  # the same
    name: str


@pytest.mark.proves("faust", "`stream.add_processor()`: works")
def test_processors_see_each_value_in_turn(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, value_serializer="json")
        seen: list[int] = []

        async def double(value: int) -> int:
            return value * 2

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            stream.add_processor(lambda value: value + 1)
            stream.add_processor(double)
            async for value in stream:
                seen.append(value)  # noqa: PERF401

        async with running(app):
            for number in range(3):
                await topic.send(value=number)
            await until(lambda: len(seen) == 3)
        assert seen == [2, 4, 6]

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`stream.take_with_timestamp()`: works")
def test_take_with_timestamp_gives_values_and_when_they_were_stored(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, value_serializer="json")
        seen: list[Any] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for values in stream.take_with_timestamp(3, within=5, timestamp_field_name="at"):
                seen.extend(values)

        async with running(app):
            for number in range(3):
                await topic.send(value={"number": number})
            await until(lambda: len(seen) == 3)
        assert [value["number"] for value in seen] == [0, 1, 2]
        assert all(value["at"] > 1_600_000_000 for value in seen)

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`derive_topic()`: works")
def test_a_topic_can_be_derived_from_another_and_from_a_stream(node: LocalNode) -> None:
    app, topic = make_app(node, value_type=Order, value_serializer="json")
    derived = topic.derive_topic(topics=["Other"], prefix="p-", suffix="-s")
    assert derived.topics == ["p-Other-s"]
    assert derived.value_type is Order
    assert topic.stream().derive_topic("Third").value_type is Order
    assert list(app.topic("a", "b").topics) == ["a", "b"]


@pytest.mark.proves("faust", "Sinks: function, coroutine, agent, topic: works")
def test_every_kind_of_sink(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node, value_serializer="json")
        results = app.topic("Results", queues=1)
        seen: dict[str, list[Any]] = {
            name: [] for name in ["function", "coroutine", "agent", "topic"]
        }

        async def coroutine(value: Any) -> None:
            seen["coroutine"].append(value)

        other = app.agent(app.topic("Other", queues=1), name="other")(collecting(seen["agent"]))
        app.agent(results, name="results")(collecting(seen["topic"]))

        @app.agent(topic, sink=[seen["function"].append, coroutine, results])
        async def reader(stream: Any) -> Any:
            async for value in stream:
                yield value + 1

        reader.add_sink(other)
        async with running(app):
            await topic.send(value=1)
            await until(lambda: all(values == [2] for values in seen.values()))

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`app.channel()`: works")
def test_an_agent_over_a_channel_gets_what_is_put_there(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        channel = app.channel(value_type=int)
        seen: list[int] = []
        app.agent(channel, name="reader")(collecting(seen))
        async with running(app):
            for number in range(5):
                await channel.send(value=number)
            await until(lambda: seen == list(range(5)))

    asyncio.run(scenario())


def test_no_port_is_opened_unless_the_app_asks_for_it() -> None:
    assert App("app").conf.web_enabled is False


@pytest.mark.proves("faust", "`@app.on_produce_message`: works")
def test_a_message_can_be_changed_before_it_is_sent(node: LocalNode) -> None:
    async def scenario() -> None:
        app, topic = make_app(node)
        events: list[Any] = []

        @app.on_produce_message.connect  # type: ignore[untyped-decorator]  # Faust's
        def sign(*_: Any, headers: list[Any], **__: Any) -> None:
            headers.append(("signed", b"yes"))

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for event in stream.events():
                events.append(event)  # noqa: PERF401

        async with running(app):
            await topic.send(value=b"1")
            await app.send(topic, value=b"2")
            await until(lambda: len(events) == 2)
        assert [event.headers["signed"] for event in events] == [b"yes"] * 2

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`faust.Record`: coercion, validation, polymorphic fields: works")
def test_models_with_coercion_validation_and_their_own_kinds(node: LocalNode) -> None:
    class Checked(faust.Record, coerce=True, validation=True):  # type: ignore[misc, call-arg]
        amount: int = faust.models.fields.IntegerField(min_value=0, max_value=9)

    class Circle(Shape):
        radius: int

    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("Shapes", value_type=Shape, queues=1)
        seen: list[Any] = []
        app.agent(topic, name="reader")(collecting(seen))
        async with running(app):
            await topic.send(value=Circle(name="c", radius=2))
            await until(lambda: seen)
        assert seen[0].name == "c"

    asyncio.run(scenario())
    assert Checked(amount="7").amount == 7
    with pytest.raises(faust.exceptions.ValidationError):
        Checked(amount=17)


@pytest.mark.proves("faust", "Codecs, chained and registered: works")
def test_codecs_can_be_registered_and_chained(node: LocalNode) -> None:
    class Reversed(faust.Codec):  # type: ignore[misc]  # Faust's types are not followed
        def _dumps(self, value: bytes) -> bytes:
            return value[::-1]

        def _loads(self, value: bytes) -> bytes:
            return value[::-1]

    faust.serializers.codecs.register("reversed", Reversed())

    async def scenario() -> None:
        app, topic = make_app(node, value_serializer="json|reversed|binary")
        seen: list[Any] = []
        app.agent(topic, name="reader")(collecting(seen))
        async with running(app):
            await topic.send(value={"a": 1})
            await until(lambda: seen)
        assert seen == [{"a": 1}]

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`faust.Schema`: works")
def test_a_schema_of_ones_own(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        schema = faust.Schema(key_type=int, value_type=Order, value_serializer="json")
        topic = app.topic("T", schema=schema, queues=1)
        seen: list[Any] = []

        @app.agent(topic)
        async def reader(stream: Any) -> None:
            async for key, order in stream.items():
                seen.append((key, order))

        async with running(app):
            await topic.send(key=7, value=Order(user="u", amount=2))
            await until(lambda: seen)
        assert seen == [(7, Order(user="u", amount=2))]

    asyncio.run(scenario())


@pytest.mark.proves("faust", "`agent.test_context()`: works")
def test_a_test_context_takes_values_keys_and_headers(node: LocalNode) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        counts = app.Table("counts", default=int)

        @app.agent(app.topic("T"))
        async def count(stream: Any) -> Any:
            async for key, value in stream.items():
                counts[key] += value
                yield counts[key]

        async with count.test_context() as agent:
            event = await agent.put(key="k", value=2, headers={"a": b"b"})
            await agent.put(key="k", value=3)
            assert (event.key, event.headers) == ("k", {"a": b"b"})
            assert agent.results == {0: 2, 1: 5}

    asyncio.run(scenario())
