"""What a host of sinks refuses before there is a Spark session."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rocketray as rr
from rocketray.base.data_directory import DATA_VARIABLE
from rocketray.errors import ConfigError
from rocketray.queries.spark.sink import SinkHost
from rocketray.runtime.files.home import settle_identity
from rocketray.topology.app.app import App
from rocketray.topology.app.sink_spec import SinkSpec


def lake(frame: object, batch_id: int) -> None:
    """A sink."""


@pytest.mark.proves("spark", "Names and checkpoints of sinks are unique")
@pytest.mark.parametrize("checkpoint", ["kept/one", "./kept/one", "{here}/kept/one"])
def test_two_sinks_do_not_share_a_directory_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    first = SinkSpec("one", lake, "Trade")  # under the host's checkpoints
    second = SinkSpec("two", lake, "Trade", checkpoint=checkpoint.format(here=tmp_path))
    with pytest.raises(ConfigError, match="sinks 'one' and 'two' have the same checkpoint"):
        SinkHost([first, second], data=tmp_path, checkpoints=Path("kept"))
    SinkHost([second], data=tmp_path, checkpoints=Path("kept"))


@pytest.mark.proves("spark", "`SinkHost` takes an app, its sinks or a list; paths and texts")
def test_paths_are_texts_too_and_sinks_those_of_an_app(tmp_path: Path) -> None:
    spec = SinkSpec("one", lake, "Trade", checkpoint=str(tmp_path / "kept" / "two"))
    other = SinkSpec("two", lake, "Trade")
    for sinks in ([spec, other], {"one": spec, "two": other}):
        with pytest.raises(ConfigError, match="have the same checkpoint"):
            SinkHost(sinks, data=str(tmp_path), checkpoints=str(tmp_path / "kept"))
    SinkHost({"two": other}, data=str(tmp_path), checkpoints="kept")
    SinkHost({"two": other})


def no_session() -> SparkSession:
    pytest.fail("Spark was started")


@pytest.mark.proves("spark", "The call `run()`")
def test_a_run_where_no_node_ever_was_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(ConfigError) as raised:
        SinkHost([SinkSpec("one", lake, "Trade")], open_session=no_session).run()
    looked = tmp_path / "rocketray-data"
    assert str(raised.value) == (
        f"{looked} is not a node's data directory; start its node (rocketray start "
        f"--data {looked}), or name its data directory: with .option('data', …) of a read, data= "
        "of a SinkHost, or ROCKETRAY_DATA in the environment; a cluster on another machine is "
        "found by its name: cluster, or ROCKETRAY_CLUSTER"
    )
    assert not looked.exists()


@pytest.mark.proves("spark", "The call `run()`")
def test_a_run_waits_for_topics_of_a_node_that_has_none_yet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settle_identity(tmp_path)
    interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    host = SinkHost([SinkSpec("one", lake, "Trade")], data=tmp_path, open_session=no_session)
    interrupt.start()
    try:
        host.run()
    finally:
        interrupt.cancel()
    [waits] = [one.getMessage() for one in caplog.records if one.name.endswith("sink_runner")]
    assert waits.startswith("sink one waits for its topic: topic 'Trade' does not exist in ")


@pytest.mark.proves("spark", "`SinkHost` takes an app, its sinks or a list; paths and texts")
def test_a_host_has_the_sinks_and_the_node_of_an_app_unless_it_is_told_another(
    tmp_path: Path,
) -> None:
    app = App("lakes", data=tmp_path / "own")
    with pytest.raises(ConfigError, match="there is no sink to run; declare one with @app"):
        SinkHost(app)
    app.sink("Trade")(lake)
    for host, data in ((SinkHost(app), "own"), (SinkHost(app, data=tmp_path / "other"), "other")):
        with pytest.raises(ConfigError, match=f"{tmp_path / data} is not a node's data directory"):
            host.run()


def test_sinks_of_two_apps_may_have_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    specs = [App(name).sink("Trade")(lake) for name in ("one", "two apps")]
    places = [SinkHost([spec])._checkpoint_of(spec) for spec in specs]
    assert places == [f"{tmp_path}/checkpoints/{name}/lake" for name in ("one", "two%20apps")]


def test_the_host_has_a_short_name_that_is_loaded_late() -> None:
    assert rr.SinkHost is SinkHost
