"""The spans of an app: each message's way from a send over handlers to another send is one trace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.harness.patience import until
from support.nodes.apps import running
from support.nodes.local_node import LocalNode
from support.nodes.spans import NoOpTracerProvider, Spans, StatusCode, Tracing

from rocketray.base.names import RETRY_PREFIX
from rocketray.errors import ConfigError
from rocketray.message import Message
from rocketray.messaging.producers.producer import NodeProducer
from rocketray.testing import Broker
from rocketray.topology.app.app import App

COUNT = 5


@pytest.fixture
def spans() -> Spans:
    return Spans()


def run(
    node: LocalNode,
    spans: Spans,
    handler: Callable[[App, Any, list[Any]], Awaitable[None]],
    messages: list[Message],
    count: int = COUNT,
) -> None:
    """Send *messages*, and have an agent handle them until it has added *count* values."""

    async def scenario() -> None:
        app = App("app", connection=node, tracing=spans.tracing)
        topic = app.topic("T", queues=1, value_serializer="raw")
        seen: list[Any] = []

        async def reader(stream: Any) -> None:
            await handler(app, stream, seen)

        app.agent(topic, name="reader")(reader)
        async with running(app):
            with NodeProducer(node, tracing=spans.tracing) as producer:
                for message in messages:
                    producer.send("T", message.body, properties=message.properties)
            await until(lambda: len(seen) >= count)
            await app.consumer.commit()

    node.topics.ensure("T", 1)
    asyncio.run(scenario())


def numbered(count: int = COUNT) -> list[Message]:
    return [Message("T", b"%d" % number) for number in range(count)]


def parent_of(span: Any) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: Any) -> int:
    found: int = span.get_span_context().span_id
    return found


async def pass_on(app: App, stream: Any, seen: list[Any]) -> None:
    other = app.topic("U", queues=1, value_serializer="raw")
    async for body in stream:
        await (await other.send(value=body))
        seen.append(body)


def test_a_message_a_handler_and_what_it_sends_are_one_trace(node: LocalNode, spans: Spans) -> None:
    run(node, spans, pass_on, numbered())
    sent, processed = spans.named("send T"), spans.named("process T")
    assert [parent_of(span) for span in processed] == [id_of(span) for span in sent]
    onward = spans.named("send U")
    assert {parent_of(span) for span in onward} == {id_of(span) for span in processed}
    carried = [message.properties["traceparent"] for message in node.stored("U")]
    assert carried == [spans.carried_by(span) for span in onward]
    assert processed[0].kind.name == "CONSUMER"
    attributes = dict(processed[0].attributes or {})
    assert attributes.pop("messaging.message.id") == node.stored("T")[0].unique_key
    assert attributes == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "app-reader",
        "messaging.rocketmq.consumption_model": "clustering",
    }


def test_polls_and_commits_have_spans_with_links(node: LocalNode, spans: Spans) -> None:
    run(node, spans, pass_on, numbered())
    received = spans.named("receive T")
    counts = [
        int(str((span.attributes or {})["messaging.batch.message_count"])) for span in received
    ]
    assert sum(counts) == COUNT
    linked = [link.context.span_id for span in received for link in span.links]
    assert linked == [id_of(span) for span in spans.named("send T")]
    settled = spans.named("settle T")
    assert (settled[-1].attributes or {})["rocketray.queue_offset"] == COUNT
    assert all((span.start_time or 0) <= (span.end_time or 0) for span in (*received, *settled))


def test_a_list_has_one_span_with_a_link_to_each_message(node: LocalNode, spans: Spans) -> None:
    async def take(_: App, stream: Any, seen: list[Any]) -> None:
        async for values in stream.take(COUNT, within=30):
            seen += values

    run(node, spans, take, numbered())
    span = spans.only("process T")
    assert span.parent is None
    assert [link.context.span_id for link in span.links] == [
        id_of(each) for each in spans.named("send T")
    ]
    assert (span.attributes or {})["messaging.batch.message_count"] == COUNT


def test_a_failure_is_in_its_span_and_the_retry_in_the_same_trace(
    node: LocalNode, spans: Spans
) -> None:
    failures: list[bytes] = []

    async def fail_first(_: App, stream: Any, seen: list[Any]) -> None:
        async for body in stream:
            if not failures:
                failures.append(body)
                raise ValueError("not today")
            seen.append(body)

    run(node, spans, fail_first, numbered(3), count=2)
    sent = spans.named("send T")
    failed, *well = spans.named("process T")[:3]
    assert (failed.status.status_code, parent_of(failed)) == (StatusCode.ERROR, id_of(sent[0]))
    assert (failed.attributes or {})["error.type"] == "ValueError"
    assert all(span.status.status_code is StatusCode.UNSET for span in well)
    topics = [topic for topic in node.topics.all() if topic.startswith("SCHEDULE")]
    [copy] = [message for topic in topics for message in node.stored(topic)]
    assert copy.properties["REAL_TOPIC"].startswith(RETRY_PREFIX)
    assert copy.properties["traceparent"] == spans.carried_by(sent[0])


@pytest.mark.parametrize("given", ["no context", "00-zz-zz-01", "x" * 500])
def test_a_context_that_is_invalid_begins_a_trace(
    node: LocalNode, spans: Spans, given: str
) -> None:
    broken = [Message("T", b"1", properties={"traceparent": given, "tracestate": ",=,"})]
    run(node, spans, pass_on, broken, count=1)
    processed = spans.only("process T")
    assert processed.parent is None
    assert not spans.named("receive T")[0].links


def test_the_span_is_current_in_the_handler_alone(node: LocalNode, spans: Spans) -> None:
    from opentelemetry import trace  # noqa: PLC0415 - of this test

    def current() -> int:
        return trace.get_current_span().get_span_context().span_id

    async def look(_: App, stream: Any, seen: list[Any]) -> None:
        assert current() == 0
        async for _body in stream:
            seen.append(current())
            if len(seen) == COUNT:
                break
        assert current() in {0, seen[-1]}

    seen: list[int] = []

    async def keep(app: App, stream: Any, into: list[Any]) -> None:
        await look(app, stream, into)
        seen.extend(into)

    run(node, spans, keep, numbered())
    assert len(set(seen)) == COUNT
    assert 0 not in seen


def test_without_tracing_there_are_no_contexts(node: LocalNode, spans: Spans) -> None:
    async def scenario() -> None:
        app = App("app", connection=node)
        topic = app.topic("T", queues=1, value_serializer="raw")
        async with running(app):
            await (await topic.send(value=b"1"))

    node.topics.ensure("T", 1)
    asyncio.run(scenario())
    assert "traceparent" not in node.stored("T")[0].properties
    assert not spans.named("send T")


def test_delayed_messages_and_dead_letters_stay_in_their_trace(spans: Spans) -> None:
    """The copies of one message: that which waits, that which is redelivered, the dead letter."""

    async def scenario(broker: Broker) -> None:
        app = App("app", connection=broker, tracing=spans.tracing)
        topic = app.topic("T", queues=1, value_serializer="raw")

        @app.agent(topic, name="reader", max_attempts=2)
        async def reader(stream: Any) -> None:
            async for _ in stream:
                raise ValueError("never")

        async with broker.running(app):
            await topic.send(value=b"1", delay=60)
            await broker.settle()
            for _ in range(4):
                broker.clock.advance(minutes=2)
                await broker.settle()

    with Broker() as broker:
        asyncio.run(scenario(broker))
        [letter] = broker.stored("%DLQ%app-reader")
        [delivered] = broker.stored("T")
        sent = spans.only("send T")
        carried = spans.carried_by(sent)
        assert delivered.properties["traceparent"] == letter.properties["traceparent"] == carried
        processed = spans.named("process T")
        assert len(processed) == 3, "redelivered twice"
        assert {parent_of(span) for span in processed} == {id_of(sent)}


@pytest.mark.parametrize("wrong", [True, "on", object()])
def test_tracing_is_one(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"give a rocketray\.tracing\.Tracing\(\)"):
        App("app", tracing=wrong)
    with pytest.raises(ConfigError, match="give a tracer provider of OpenTelemetry"):
        Tracing(wrong)


def test_without_a_provider_nothing_is_added(node: LocalNode) -> None:
    """As in a program that does not set up OpenTelemetry's SDK."""
    node.topics.ensure("T", 1)
    with NodeProducer(node, tracing=Tracing(NoOpTracerProvider())) as producer:
        producer.send("T", b"1")
        producer.send_many("T", bodies=[b"2"])
    assert all("traceparent" not in message.properties for message in node.stored("T"))
