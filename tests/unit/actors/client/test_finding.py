"""Who finds no node on this machine is told where one runs, as far as that can be known here."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from rocketray.actors.client.finding import find_node
from rocketray.actors.cluster.ensured_node import ensure_node
from rocketray.errors import ConfigError, NodeElsewhereError, NodeNotRunningError, StoreVersionError
from rocketray.runtime.files.node_lock import lock_node
from rocketray.runtime.files.paths import node_file
from rocketray.runtime.files.state_files import write_json
from rocketray.runtime.machine import here

BY_NAME = "use it by the name of its cluster (ROCKETRAY_CLUSTER, or --cluster)"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A data directory that another machine shares, or that was copied from there."""
    elsewhere = {"machine": "the-other", "bootId": "another", "processNames": "pid:[1]"}
    node_file(tmp_path).write_text(json.dumps({"pid": os.getpid(), **elsewhere}))
    return tmp_path


def test_a_node_on_another_machine_is_refused_in_one_line(copied: Path) -> None:
    with pytest.raises(NodeElsewhereError) as raised:
        find_node(copied)
    assert str(raised.value) == (
        f"the node runs on the-other, and this is {socket.gethostname()}: {BY_NAME}, or if "
        "no node runs there any more, start one here with: rocketray start "
        f"--data {copied}"
    )


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    with pytest.raises(ConfigError, match=r"app\.py is a file; name a node's directory"):
        find_node(tmp_path / "app.py")


def test_a_node_of_a_later_release_is_not_used(tmp_path: Path) -> None:
    write_json(node_file(tmp_path), {"version": 2})
    with pytest.raises(NodeNotRunningError, match=r"no node runs .*its version is 2"):
        find_node(tmp_path)
    lock = lock_node(tmp_path)
    try:
        with pytest.raises(StoreVersionError, match=r"node\.json: its version is 2"):
            find_node(tmp_path)
    finally:
        os.close(lock)


def test_a_program_starts_no_second_node_where_one_runs_on_another_machine(copied: Path) -> None:
    with pytest.raises(NodeElsewhereError, match="runs on the-other"), ensure_node(copied):
        pytest.fail("a second node was started")
    assert [path.name for path in copied.iterdir()] == [node_file(copied).name]


@pytest.mark.parametrize("address", [None, "10.1.2.3:6379"])
def test_who_has_a_ray_in_the_environment_hears_how_its_other_machines_are_used(
    address: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    said = f"no node runs on {tmp_path}; start one with: rocketray start --data {tmp_path}"
    with pytest.raises(NodeNotRunningError) as raised:
        find_node(tmp_path)
    of_ray = f"; if it runs on another machine of the Ray at {address}, {BY_NAME}"
    assert str(raised.value) == said + (of_ray if address else "")
    node_file(tmp_path).write_text(json.dumps({"pid": 0, **here()}))  # it ran on this machine
    with pytest.raises(NodeNotRunningError) as raised:
        find_node(tmp_path)
    assert str(raised.value) == said
