"""Sensors of apps: told of batches, whichever they are."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from faust.sensors import Monitor
from faust.sensors.datadog import DatadogMonitor
from faust.sensors.statsd import StatsdMonitor
from support.apps import collecting, make_app, numbers, put, running, until
from support.local_node import LocalNode

COUNT = 500


class Client:
    """What statsd, Datadog and Prometheus have in common: calls that tell a number."""

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


class Metrics:
    """Prometheus's: each is an object of its own."""

    def __init__(self, client: Client, name: str = "", label: str = "") -> None:
        self._client, self._name, self._label = client, name, label

    def __getattr__(self, name: str) -> Metrics:
        return Metrics(self._client, name)

    def labels(self, **labels: Any) -> Metrics:
        return Metrics(self._client, self._name, ".".join(map(str, labels.values())))

    def inc(self, _value: float = 1) -> None:
        self._client.incr(self._name)

    def set(self, value: float) -> None:
        self._client.gauge(f"{self._name}.{self._label}", value)

    def clear_topic_related_metrics(self) -> None:
        """Of no interest."""

    def observe(self, _value: float = 1) -> None:
        """Of no interest."""

    dec = observe


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


def prometheus(monkeypatch: pytest.MonkeyPatch) -> tuple[Monitor, Client]:
    """Its module cannot be imported without its library, so there is one of its name."""
    names = "CONTENT_TYPE_LATEST REGISTRY CollectorRegistry Counter Gauge Histogram generate_latest"
    library = SimpleNamespace(**dict.fromkeys(names.split()))
    monkeypatch.setitem(sys.modules, "prometheus_client", library)
    monkeypatch.delitem(sys.modules, "faust.sensors.prometheus", raising=False)
    module = import_module("faust.sensors.prometheus")
    monkeypatch.delitem(sys.modules, "faust.sensors.prometheus")
    client = Client()
    return module.PrometheusMonitor(metrics=Metrics(client)), client


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


@pytest.mark.parametrize(
    ("make", "received", "offset"),
    [
        (statsd, "messages_received", "read_offset.T.0"),
        (datadog, "messages_received", "read_offset"),
        (prometheus, "messages_received", "messages_received_per_topics_partition.T.0"),
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
