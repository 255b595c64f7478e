"""What Ray is told of the metrics: differences of counters, and no value where there is none."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from support.harness.patience import patience

from rocketray.errors import ShardUnavailableError
from rocketray.services.metrics import ray_mirror
from rocketray.services.metrics.ray_mirror import RayMirror


class Recorded:
    """Ray's module, with the value of each series."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], float] = {}
        self.made: list[str] = []

    def Gauge(self, name: str, description: str, tag_keys: tuple[str, ...]) -> Any:  # noqa: N802
        return self._made(name, description, tag_keys, "set")

    def Counter(self, name: str, description: str, tag_keys: tuple[str, ...]) -> Any:  # noqa: N802
        return self._made(name, description, tag_keys, "inc")

    def _made(self, name: str, description: str, tag_keys: tuple[str, ...], verb: str) -> Any:
        assert description
        self.made.append(name)

        def record(value: float, tags: dict[str, str]) -> None:
            assert tuple(tags) == tag_keys
            series = name, ",".join(tags.values())
            assert value > 0 or verb == "set", "Ray refuses it"
            self.values[series] = value + (self.values.get(series, 0) if verb == "inc" else 0)

        return type(verb, (), {verb: staticmethod(record)})()


def gauge(name: str, **values: float) -> Metric:
    family = GaugeMetricFamily(name, "text", labels=["topic"])
    for topic, value in values.items():
        family.add_metric([topic], value)
    return family


def counter(name: str, **values: float) -> Metric:
    family = CounterMetricFamily(name, "text", labels=["topic"])
    for topic, value in values.items():
        family.add_metric([topic], value)
    return family


@pytest.fixture
def ray() -> Recorded:
    return Recorded()


def test_values_are_those_of_the_last_reading(ray: Recorded) -> None:
    mirror = RayMirror(list, ray)
    mirror.record([gauge("g", a=1, b=0), counter("c", a=5, b=0)])
    mirror.record([gauge("g", a=3, b=0), counter("c", a=7, b=0)])
    assert ray.values == {("g", "a"): 3, ("g", "b"): 0, ("c", "a"): 7}
    mirror.record([gauge("g", a=3), counter("c", a=2)])
    assert math.isnan(ray.values["g", "b"]), "unknown is not zero, and not what it was"
    assert ray.values["c", "a"] == 9, "counted anew"
    mirror.record([gauge("g", b=4)])
    assert ray.values["g", "b"] == 4
    assert math.isnan(ray.values["g", "a"])
    assert ray.made == ["g", "c"], "each once"


def test_samples_of_queues_are_left_out(ray: Recorded) -> None:
    family = GaugeMetricFamily("q", "text", labels=["topic", "queue_id"])
    family.add_metric(["a", "0"], 1)
    RayMirror(list, ray).record([family])
    assert ray.values == {}


def test_while_the_node_does_not_answer_there_are_no_values(
    ray: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_mirror, "_INTERVAL_S", 0.01)
    answers = [[gauge("g", a=1)]]
    was_silent, has_come_back = threading.Event(), threading.Event()

    def read() -> list[Metric]:
        if answers:
            return answers.pop()
        if was_silent.is_set():
            has_come_back.set()
            return [gauge("g", a=2)]
        was_silent.set()
        raise ShardUnavailableError("the coordinator", "it is gone")

    mirror = RayMirror(read, ray)
    mirror.start()
    assert has_come_back.wait(patience(20))
    mirror.close()
    assert math.isnan(ray.values["g", "a"]), "it is closed"
