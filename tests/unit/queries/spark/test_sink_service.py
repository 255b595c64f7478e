"""The sinks of an app in a thread, up to the point where Spark would be started."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.harness.patience import patience

from rocketray.base.cluster import Cluster
from rocketray.errors import ConfigError, StreamError
from rocketray.queries.spark import sink_service
from rocketray.queries.spark.sink_service import SinkService
from rocketray.runtime.files.home import settle_identity
from rocketray.topology.app.app import App
from rocketray.topology.app.sink_statistics import SinkState, SinkStatistics


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.setattr(sink_service, "find_java", lambda _environ: None)
    app = App("lakes", data=tmp_path / "data")
    app.sink("Trade")(lake)
    return app


def lake(frame: object, batch_id: int) -> None:
    """A sink."""


@pytest.mark.proves("spark", "A missing Spark or Java is told before anything starts")
def test_where_there_is_no_java_nothing_starts(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_java(_environ: object) -> None:
        raise ConfigError("Spark needs Java 17 or newer")

    monkeypatch.setattr(sink_service, "find_java", find_java)
    with pytest.raises(ConfigError, match="needs Java 17"):
        SinkService(app)


def test_a_sink_that_waits_for_its_topic_counts_as_started_after_a_while(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_service, "_TOPIC_GRACE_S", 0.1)
    monkeypatch.setattr(sink_service, "_SETTLE_S", 0.1)
    settle_identity(tmp_path / "data")
    service = SinkService(app)
    service.start()
    service.await_start(threading.Event())
    [sink] = service.statistics()
    assert (sink.name, sink.state, sink.lag) == ("lake", SinkState.WAITING, None)
    service.stop()
    assert service.error is None


def test_what_ends_the_sinks_is_kept_and_told(app: App) -> None:
    has_failed = threading.Event()
    service = SinkService(app)
    service.start(has_failed.set)
    assert has_failed.wait(patience(20))
    with pytest.raises(ConfigError, match="is not a node's data directory"):
        service.await_start(threading.Event())
    service.stop()


def test_a_sink_that_failed_is_a_failed_start(app: App) -> None:
    service = SinkService(app, Cluster("orders"))
    service._note(
        (SinkStatistics("lake", "Trade", SinkState.RESTARTING, 1, error="E: no", place="x.py:3"),)
    )
    with pytest.raises(StreamError, match=r"^sink lake failed: E: no \(x.py:3\)$"):
        service.await_start(threading.Event())
    service.stop()


def test_sinks_that_do_not_stop_leave_their_reason(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck:
        def __init__(self, *_: object, **__: object) -> None: ...

        def run_until(self, stopping: threading.Event, _report: object) -> None:
            assert stopping.wait(patience(60))
            raise StreamError("sink 'lake' does not stop: it waited 300 s")

    monkeypatch.setattr(sink_service, "SinkHost", Stuck)
    service = SinkService(app)
    service.start()
    service.stop()
    assert str(service.error) == "sink 'lake' does not stop: it waited 300 s"
