"""``rocketray ping`` as a probe: a node that answers, one that hangs, one that was killed, and none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.harness.command_server import run_here
from support.nodes.local_node import LocalNode
from support.nodes.serving_node import serving

from rocketray.runtime.files.paths import node_file
from rocketray.runtime.machine import here

ENDED = 2**31 - 1


def codes(data: Path) -> tuple[int, int]:
    """The exit codes of a readiness and of a liveness probe."""
    return run_here("ping", "--data", data).code, run_here(
        "ping", "--if-running", "--data", data
    ).code


def test_a_node_that_answers_is_ready_and_alive(tmp_path: Path) -> None:
    with LocalNode(tmp_path) as node, serving(node):
        assert codes(tmp_path) == (0, 0)
        [told] = run_here("ping", "--data", tmp_path, "--json").lines()
        assert told == {"data": str(tmp_path), "answers": True}
    assert codes(tmp_path) == (1, 0)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_node_that_has_not_started_is_not_ready_and_is_left_alone(
    tmp_path: Path, *, is_there: bool
) -> None:
    data = tmp_path / "data"
    if is_there:
        data.mkdir()
    assert codes(data) == (1, 0)
    assert data.exists() is is_there
    said = run_here("ping", "--data", data).err
    assert said == f"rocketray: no node runs on {data}, or it has not started yet\n"


@pytest.mark.parametrize("process", [{"pid": ENDED}, {"pid": os.getpid(), "startedTicks": 1}])
def test_a_node_that_was_killed_is_not_ready_though_its_description_is_there(
    tmp_path: Path, process: dict[str, int]
) -> None:
    """Also when another process has its number, as in a container that was started again."""
    node_file(tmp_path).write_text(json.dumps({"version": 1, **process, **here()}))
    assert codes(tmp_path) == (1, 0)


def test_a_node_that_hangs_is_neither_ready_nor_alive(tmp_path: Path) -> None:
    node_file(tmp_path).write_text(json.dumps({"version": 1, "pid": os.getpid(), **here()}))
    assert codes(tmp_path) == (1, 1)
    said = run_here("ping", "--if-running", "--data", tmp_path).err
    assert f"does not answer; its process is {os.getpid()}" in said


def test_a_cluster_has_no_node_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETRAY_DATA", raising=False)
    assert "ping reads a directory" in run_here("--cluster", "orders", "ping").err
