"""One rule says which data directory is meant: the argument, ROCKETRAY_DATA, ./rocketray-data."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.harness.command_server import run_here
from yarl import URL

import rocketray as rr
from rocketray.actors.cluster.node import Node
from rocketray.base.data_directory import data_directory
from rocketray.errors import ConfigError, NodeNotRunningError
from rocketray.queries.spark.source_options import parse_options
from rocketray.topology.stock.transport import node_of_broker

OPENERS: dict[str, Callable[..., object]] = {
    "Client": rr.Client,
    "Producer": rr.Producer,
    "transactional": lambda *data: rr.Producer(*data, group="g", check=lambda _: "unknown"),
}


def test_the_argument_counts_then_the_environment_then_the_default() -> None:
    environ = {"ROCKETRAY_DATA": "/of/environment"}
    assert data_directory("here", environ) == Path("here")
    assert data_directory(Path("/there"), environ) == Path("/there")
    assert data_directory(None, environ) == Path("/of/environment")
    assert data_directory(None, {}) == Path("rocketray-data")


@pytest.mark.parametrize("given", ["", 7, b"x", ["x"]])
def test_what_names_no_directory_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="the data directory is"):
        data_directory(given, {})


def test_an_empty_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETRAY_DATA", "")
    with pytest.raises(ConfigError, match="ROCKETRAY_DATA is empty"):
        data_directory()
    assert data_directory("given") == Path("given")


@pytest.mark.parametrize("opener", OPENERS)
def test_programs_find_the_node_of_the_environment(
    opener: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETRAY_DATA", str(tmp_path / "of-environment"))
    with pytest.raises(NodeNotRunningError, match=f"no node runs on {tmp_path}/of-environment"):
        OPENERS[opener]()
    with pytest.raises(NodeNotRunningError, match=f"no node runs on {tmp_path}/given"):
        OPENERS[opener](tmp_path / "given")
    with pytest.raises(ConfigError, match="is empty"):
        OPENERS[opener]("")


def test_an_app_finds_the_node_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETRAY_DATA", str(tmp_path / "of-environment"))
    with pytest.raises(NodeNotRunningError, match=f"no node runs on {tmp_path}/of-environment"):
        asyncio.run(rr.App("a").connect())
    with pytest.raises(ConfigError, match="is empty"):
        rr.App("b", data="")


def test_an_app_that_starts_a_node_starts_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def begin(node: Node) -> None:
        begun.append(node.data)
        raise KeyboardInterrupt

    monkeypatch.setattr(Node, "_start", begin)
    monkeypatch.setenv("ROCKETRAY_DATA", str(tmp_path / "of-environment"))
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        rr.App("c").main()
    assert begun == [tmp_path / "of-environment"]


def test_stock_apps_spark_and_commands_follow_the_same_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETRAY_DATA", str(tmp_path))
    assert node_of_broker(URL("rocketray://")) == tmp_path
    assert parse_options({"topic": "T"}, os.environ).node == tmp_path
    assert f"no node runs on {tmp_path};" in run_here("topics", "list").err
    monkeypatch.setenv("ROCKETRAY_DATA", "")
    for refuse in (
        lambda: node_of_broker(URL("rocketray://")),
        lambda: parse_options({"topic": "T"}, os.environ),
        lambda: parse_options({"topic": "T", "data": ""}, {}),
    ):
        with pytest.raises(ConfigError, match="is empty"):
            refuse()


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        (("start", "--data", ""), None),
        (("topics", "list", "--data", ""), None),
        (("filter", "check", "a = 1", "--data", ""), None),
        (("start",), ""),
        (("topics", "list"), ""),
    ],
)
def test_a_command_refuses_an_empty_directory(
    command: tuple[str, ...], variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROCKETRAY_DATA", raising=False)
    if variable is not None:
        monkeypatch.setenv("ROCKETRAY_DATA", variable)
    done = run_here(*command)
    assert done.code == 2
    assert "is empty" in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_command_refuses_a_file_for_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = run_here("topics", "list", "--data", file)
    assert (done.code, f"{file} is not a directory" in done.err) == (2, True)
