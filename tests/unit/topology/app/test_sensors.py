"""Sensors of apps: told of batches, whichever they are."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from faust.sensors import Monitor
from faust.sensors.datadog import DatadogMonitor
from faust.sensors.prometheus import setup_prometheus_sensors
from faust.sensors.statsd import StatsdMonitor
from prometheus_client import CollectorRegistry
from support.harness.patience import until
from support.nodes.apps import collecting, make_app, numbers, put, running
from support.nodes.local_node import LocalNode

from rocketray.message import Message
from rocketray.topology.app.sensing import sense_sends

COUNT = 500


class Client:
    """What statsd and Datadog have in common: calls that tell a number."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.calls: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}

    def incr(self, metric: str, **_: Any) -> None:
        self.calls[metric] += 1

    def increment(self, metric: str, **_: Any) -> None:
        self.calls[metric] += 1

    def gauge(self, metric: str, value: float, **_: Any) -> None:
        self.gauges[metric] = value

    def decr(self, *_: Any, **__: Any) -> None:
        """Of no interest."""

    decrement = timing = decr


def statsd(monkeypatch: pytest.MonkeyPatch) -> tuple[Monitor, Client]:
    client = Client()
    module = SimpleNamespace(StatsClient=lambda **_: client)
    monkeypatch.setattr("faust.sensors.statsd.statsd", module)
    monkeypatch.setattr("faust.sensors.statsd.StatsClient", module.StatsClient)
    return StatsdMonitor(), client


def datadog(monkeypatch: pytest.MonkeyPatch) -> tuple[Monitor, Client]:
    client = Client()
    monkeypatch.setattr("faust.sensors.datadog.datadog", SimpleNamespace())
    monkeypatch.setattr("faust.sensors.datadog.DogStatsd", lambda **_: client, raising=False)
    return DatadogMonitor(), client


def run(node: LocalNode, monitor: Any = None) -> Any:
    """The monitor of an app whose agent read ``COUNT`` messages of one queue."""

    async def scenario() -> Any:
        app, topic = make_app(node)
        if monitor is not None:
            app.monitor = monitor
        seen: list[bytes] = []
        app.agent(topic, name="reader")(collecting(seen))
        async with running(app):
            await until(lambda: app.monitor.rebalance_end_latency)  # Faust forgets offsets then
            put(node, "T", numbers(COUNT))
            await until(lambda: len(seen) == COUNT)
            app.monitor.count("mine", 2)
        return app.monitor

    node.topics.ensure("T", 1)
    return asyncio.run(scenario())


def test_fausts_monitor_counts_every_message(node: LocalNode) -> None:
    monitor = run(node)
    assert monitor.messages_received_total == COUNT
    assert monitor.messages_received_by_topic == {"T": COUNT}
    assert monitor.events_total == COUNT
    assert list(monitor.events_by_stream.values()) == [COUNT]
    assert list(monitor.tp_read_offsets.values()) == [COUNT - 1]
    assert monitor.metric_counts["mine"] == 2


@pytest.mark.proves("faust", "Sensors: differs")
def test_a_sensor_is_called_for_each_batch_and_not_for_each_message(node: LocalNode) -> None:
    class Counting(Monitor):  # type: ignore[misc]  # Faust's types are not followed
        calls: Counter[str]

        def on_message_in(self, *arguments: Any) -> None:
            self.calls["in"] += 1
            super().on_message_in(*arguments)

        def on_message_out(self, *arguments: Any) -> None:
            self.calls["out"] += 1
            super().on_message_out(*arguments)

    counting = Counting()
    counting.calls = Counter()
    monitor = run(node, counting)
    assert monitor.messages_received_total == monitor.events_total == COUNT
    assert monitor.messages_active == monitor.events_active == 0
    assert 0 < monitor.calls["in"] == monitor.calls["out"] < COUNT / 10


@pytest.mark.proves("faust", "Statsd, Datadog, Prometheus: differs")
@pytest.mark.parametrize(
    ("make", "received", "offset"),
    [
        (statsd, "messages_received", "read_offset.T.0"),
        (datadog, "messages_received", "read_offset"),
    ],
)
def test_monitors_for_other_systems_tell_how_far_a_queue_was_read(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, make: Any, received: str, offset: str
) -> None:
    monitor, client = make(monkeypatch)
    assert run(node, monitor) is monitor
    assert 0 < client.calls[received] < COUNT / 10, "a batch is one"
    assert client.gauges[offset] == COUNT - 1
    assert monitor.messages_received_total == COUNT


SENT = 7
TAKEN = 10


def test_the_names_of_fausts_sensor_for_prometheus_have_true_values(node: LocalNode) -> None:
    """All but those of what only Kafka has: assignors, and ends of queues at a fetch."""
    registry = CollectorRegistry()

    async def scenario() -> None:
        app, topic = make_app(node)
        setup_prometheus_sensors(app, registry=registry)
        counts = app.Table("counts", default=int, partitions=1)
        other = app.topic("U", value_serializer="raw", queues=1)
        seen: list[bytes] = []

        @app.agent(topic, name="reader")
        async def reader(stream: Any) -> None:
            async for body in stream:
                counts["all"] += 1
                seen.append(body)
                if len(seen) <= SENT:
                    await other.send(value=body)

        async with running(app):
            await until(lambda: app.monitor.rebalance_end_latency)
            put(node, "T", numbers(COUNT))
            await until(lambda: len(seen) == COUNT)
            await app.consumer.commit()
            await until(lambda: value("total_active_events") == 0)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"app_{name}", labels)

    node.topics.ensure("T", 1)
    asyncio.run(scenario())
    received = value("messages_received_total")
    assert received is not None
    assert 0 < received < COUNT / 10, "a batch is one"
    assert value("messages_received_per_topic_total", topic="T") == received
    assert value("active_messages") == 0
    assert value("total_events_total") == value("events_runtime_ms_count") == received
    assert value("table_operations_total", table="table.counts", operation="keys_updated") == COUNT
    assert (
        value("table_operations_total", table="table.counts", operation="keys_retrieved") == COUNT
    )
    sent = value("topic_messages_sent_total", topic="topic.U")
    assert sent is not None
    assert 1 <= sent <= SENT
    latencies = value("producer_send_latency_count")
    assert latencies is not None
    assert latencies >= sent
    assert value("total_error_messages_sent_total") == 0
    assert value("topic_partition_offset_commited", topic="T", partition="0") == COUNT
    assert value("consumer_commit_latency_count") != 0
    assert value("rebalance_done_latency_count") == 1
    assert value("total_rebalances") == value("total_rebalances_recovering") == 0
    assert value("topic_partition_end_offset", topic="T", partition="0") is None
    assert value("assign_latency_count") == 0


@pytest.mark.parametrize("how", ["take", "batches", "one by one"])
def test_messages_count_once_however_they_are_read(node: LocalNode, how: str) -> None:
    async def scenario() -> Monitor:
        app, topic = make_app(node)
        seen: list[Any] = []

        @app.agent(topic, name="reader")
        async def reader(stream: Any) -> None:
            if how == "take":
                async for values in stream.take(TAKEN, within=0.05):
                    seen.extend(values)
            elif how == "batches":
                async for rows in stream.batches():
                    seen.extend(rows.column(0).to_pylist())
            else:
                await collecting(seen)(stream)

        async with running(app):
            put(node, "T", numbers(COUNT))
            await until(lambda: len(seen) == COUNT)
            await until(lambda: app.monitor.messages_active == 0)
        monitor: Monitor = app.monitor
        return monitor

    node.topics.ensure("T", 1)
    monitor = asyncio.run(scenario())
    assert monitor.messages_received_total == monitor.events_total == COUNT
    assert sum(monitor.events_by_task.values()) == COUNT
    assert monitor.events_active == 0
    assert all(0 <= seconds < 60 for seconds in monitor.events_runtime)
    assert monitor.events_runtime


def test_sends_and_their_failures_are_counted() -> None:
    app = SimpleNamespace(sensors=[Monitor(), Failing()], producer=None)
    messages = [Message("U", b"%d" % number) for number in range(SENT)]
    sense_sends(app, messages)(None)
    sense_sends(app, messages)(ValueError("refused"))
    monitor = app.sensors[0]
    assert monitor.messages_sent == 2 * SENT
    assert monitor.messages_sent_by_topic == {"U": 2 * SENT}
    assert (len(monitor.send_latency), monitor.send_errors) == (1, SENT)


class Failing(Monitor):  # type: ignore[misc]  # Faust's types are not followed
    def on_send_initiated(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("a sensor of the user")
