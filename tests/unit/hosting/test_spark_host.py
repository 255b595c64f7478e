"""The life of the host of sinks without Ray and Spark: what it says as it starts, fails and stops."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.harness.patience import patience

from rocketray.base.cluster import DEFAULT_CLUSTER
from rocketray.errors import ConfigError, StreamError
from rocketray.hosting import host, spark_host
from rocketray.hosting.host_failure import HostFailure
from rocketray.hosting.host_plan import HostPlan
from rocketray.hosting.spark_host import SparkHost
from rocketray.topology.app.sink_statistics import SinkState, SinkStatistics

APP = "import rocketray as rr\napp = rr.App('lakes')\n@app.sink('T')\ndef lake(frame): pass\n"
SINK = SinkStatistics("lake", "T", SinkState.RUNNING, 0)


class FakeService:
    """The sinks, which do as the test says."""

    made: Exception | None = None
    started: Exception | None = None
    stopped: Exception | None = None

    def __init__(self, app: Any, place: Any, *, restarts: Any) -> None:
        if self.made is not None:
            raise self.made
        self.app, self.place, self.restarts = app, place, restarts
        self.error: Exception | None = None
        self.is_stopped = False

    def start(self) -> None:
        pass

    def await_start(self, stopping: threading.Event) -> None:
        if self.started is not None:
            raise self.started

    def statistics(self) -> tuple[SinkStatistics, ...]:
        return (SINK,)

    def stop(self) -> None:
        self.is_stopped = True
        if self.stopped is not None:
            raise self.stopped


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SparkHost]]:
    """Starts a host of an app in a directory; it is stopped with the test."""
    monkeypatch.setattr(spark_host, "SinkService", FakeService)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    hosts: list[SparkHost] = []

    def begin(module: str, text: str = APP, **options: Any) -> SparkHost:
        (tmp_path / f"{module}.py").write_text(text)
        monkeypatch.delitem(sys.modules, module, raising=False)
        plan = HostPlan(f"{module}:app", DEFAULT_CLUSTER, str(tmp_path), data="/data")
        hosts.append(SparkHost(plan, **options))
        return hosts[-1]

    yield begin
    for each in hosts:
        each.stop()


@pytest.mark.proves(
    "spark",
    "Under `rocketray up` a sink is restarted for as long as the app is up",
)
def test_a_host_runs_all_sinks_and_stops_them(start: Callable[..., SparkHost]) -> None:
    one = start("two_lakes")
    assert one.start() is None
    service: Any = one._service
    assert (list(service.app.sinks), service.place) == (["lake"], Path("/data"))
    assert service.restarts.limit is None, "for as long as the host is up"
    status = one.status()
    assert (status.is_running, status.has_failed) == (True, False)
    assert (status.agents, status.sinks) == ((), (SINK,))
    assert one.stop() is None
    assert service.is_stopped
    assert not one.status().is_running


@pytest.mark.parametrize("module", ["no_java", "no_module"])
def test_what_no_sink_can_do_without_ends_the_process_and_is_told(
    module: str, start: Callable[..., SparkHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "FAILED_START_PAUSE_S", 0.05)
    monkeypatch.setattr(FakeService, "made", ConfigError("Spark needs Java 17"))
    text = APP if module == "no_java" else "raise ValueError('no setting')"
    has_ended = threading.Event()
    noted: list[HostFailure] = []
    one = start(module, text, name="n", note=lambda _, each: noted.append(each), end=has_ended.set)
    failure = one.start()
    assert failure is not None
    assert failure.message.endswith(
        "needs Java 17"
        if module == "no_java"
        else f"no setting ({one._plan.directory}/no_module.py:1)"
    )
    assert has_ended.wait(patience(10))
    assert noted == [failure]
    assert one.status().has_failed


def test_a_sink_that_fails_at_the_start_is_told_and_goes_on_trying(
    start: Callable[..., SparkHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeService, "started", StreamError("sink 'lake': E: no"))
    one = start("bad_lake", end=lambda: pytest.fail("its process was ended"))
    failure = one.start()
    assert failure is not None
    assert failure.message == "sink 'lake': E: no"
    assert one.status().is_running


def test_sinks_that_end_by_themselves_end_the_process(
    start: Callable[..., SparkHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_host, "_LOOK_AGAIN_S", 0.01)
    has_ended = threading.Event()
    one = start("ended_lake", end=has_ended.set)
    assert one.start() is None
    service: Any = one._service
    service.error = StreamError("the JVM is gone")
    assert has_ended.wait(patience(10))
    assert one.status().has_failed


def test_sinks_that_do_not_stop_are_told(
    start: Callable[..., SparkHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeService, "stopped", StreamError("sink 'lake' does not stop"))
    one = start("slow_lake")
    assert one.start() is None
    failure = one.stop()
    assert failure is not None
    assert failure.message == "sink 'lake' does not stop"
