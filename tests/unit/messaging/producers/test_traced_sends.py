"""Sends with spans: their context is in the messages, and never in place of another one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.nodes.local_node import LocalNode
from support.nodes.spans import Spans, StatusCode

from rocketray.errors import ConfigError, StreamError, TopicNotFoundError
from rocketray.message import Message
from rocketray.messaging.producers.async_producer import NodeAsyncProducer
from rocketray.messaging.producers.producer import NodeProducer

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("T", 1)
        yield node


@pytest.fixture
def spans() -> Spans:
    return Spans()


def contexts(node: LocalNode) -> list[str | None]:
    return [message.properties.get("traceparent") for message in node.stored("T")]


def attributes(span: Any) -> dict[str, Any]:
    return dict(span.attributes)


def test_a_send_has_a_span_whose_context_its_message_carries(node: LocalNode, spans: Spans) -> None:
    with NodeProducer(node, tracing=spans.tracing) as producer:
        stored = producer.send("T", b"body", tags="a", keys=["k1", "k2"], properties={"x": "1"})
        future = producer.send_async("T", b"2")
        future.result()
    first, second = spans.named("send T")
    assert contexts(node) == [spans.carried_by(first), spans.carried_by(second)]
    assert attributes(first) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": stored.message_id,
        "messaging.message.body.size": 4,
        "messaging.rocketmq.message.tag": "a",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
    }
    assert first.kind.name == "PRODUCER"
    assert node.stored("T")[0].properties["x"] == "1"
    assert stored.queue_offset == 0


def test_it_is_below_the_span_that_is_current(node: LocalNode, spans: Spans) -> None:
    tracer = spans.provider.get_tracer("test")
    with NodeProducer(node, tracing=spans.tracing) as producer, tracer.start_as_current_span("web"):
        producer.send("T", b"1")
    parent = spans.only("send T").parent
    web = spans.only("web").get_span_context()
    assert parent is not None
    assert web is not None
    assert (parent.trace_id, parent.span_id) == (web.trace_id, web.span_id)


@pytest.mark.parametrize("given", [GIVEN, "no context", "00-" + "0" * 32 + "-00f067aa0ba902b7-01"])
def test_a_context_that_is_given_stays_whatever_it_is(
    node: LocalNode, spans: Spans, given: str
) -> None:
    with NodeProducer(node, tracing=spans.tracing) as producer:
        producer.send("T", b"1", properties={"traceparent": given})
        producer.send_many("T", [Message("T", b"2", properties={"traceparent": given})])
        producer.send_many("T", bodies=[b"3"], properties={"traceparent": [given]})
        table = pa.table({"body": [b"4"], "traceparent": [given]})
        producer.send_many("T", table, property_columns=["traceparent"])
    assert {*contexts(node)} == {given}
    links = [link.context.span_id for link in spans.named("send T")[0].links]
    assert links == ([0x00F067AA0BA902B7] if given == GIVEN else [])


def test_a_state_without_a_context_is_of_no_trace(node: LocalNode, spans: Spans) -> None:
    """W3C's rules drop it; beside the span's own context it would be taken for its state."""
    state = {"tracestate": "other=1"}
    with NodeProducer(node, tracing=spans.tracing) as producer:
        producer.send("T", b"1", properties=state)
        producer.send_many("T", [Message("T", b"2", properties=state)])
        producer.send_many("T", bodies=[b"3"], properties={"tracestate": ["other=1"]})
        table = pa.table({"body": [b"4"], "tracestate": ["other=1"]})
        producer.send_many("T", table, property_columns=["tracestate"])
    assert [message.properties.get("tracestate") for message in node.stored("T")] == [None] * 4
    assert None not in contexts(node)


def test_every_message_of_a_batch_has_the_context_of_its_span(
    node: LocalNode, spans: Spans
) -> None:
    with NodeProducer(node, tracing=spans.tracing) as producer:
        producer.send_many("T", [Message("T", b"1"), Message("T", b"2")])
        producer.send_many("T", bodies=[b"3"], properties={"x": ["1"]})
        producer.send_many(
            "T", pa.table({"body": [b"4", b"5"], "x": ["1", "2"]}), property_columns=["x"]
        )
    batches = spans.named("send T")
    assert [attributes(one)["messaging.batch.message_count"] for one in batches] == [2, 1, 2]
    of_batches = [spans.carried_by(one) for one in batches]
    expected = [of_batches[0]] * 2 + [of_batches[1]] + [of_batches[2]] * 2
    assert contexts(node) == expected


def test_a_failed_send_says_so(node: LocalNode, spans: Spans) -> None:
    with NodeProducer(node, tracing=spans.tracing) as producer:
        for send in (producer.send, producer.send_async):
            with pytest.raises(TopicNotFoundError):
                send("Missing", b"")
        with pytest.raises(StreamError):
            producer.send_many("Missing", [Message("Missing", b"")])
    failed = spans.named("send Missing")
    assert [span.status.status_code for span in failed] == [StatusCode.ERROR] * 3
    assert attributes(failed[0])["error.type"] == "TopicNotFoundError"
    assert failed[0].events[0].name == "exception"


def test_tasks_have_spans_too(node: LocalNode, spans: Spans) -> None:
    async def scenario() -> None:
        async with NodeAsyncProducer(lambda: NodeProducer(node, tracing=spans.tracing)) as producer:
            await asyncio.gather(*(producer.send("T", b"%d" % number) for number in range(5)))

    asyncio.run(scenario())
    sent = {spans.carried_by(span) for span in spans.named("send T")}
    assert len(sent) == 5
    assert set(contexts(node)) == sent


def test_tracing_is_one(node: LocalNode) -> None:
    with pytest.raises(ConfigError, match=r"give a rocketray\.tracing\.Tracing\(\)"):
        NodeProducer(node, tracing=True)  # type: ignore[arg-type]


def test_without_it_opentelemetry_is_not_imported() -> None:
    program = (
        "import sys; import rocketray.topology.app.app, rocketray.messaging.producers.producer; "
        "assert not [name for name in sys.modules if name.startswith('rocketray.tracing')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_where_it_is_missing_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name.startswith(("rocketray.tracing", "opentelemetry")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"pip install 'rocketray\[otel\]'"):
        import_module("rocketray.tracing")
