"""What a node does before it has a Ray: it makes its directory for whom it is to be."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from rocketray.actors.cluster.node import Node
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.actors.files.node_lock import lock_node
from rocketray.errors import NodeNotRunningError


def mode_after_lock(data: Path, mode: int = NodeOptions().data_mode) -> int:
    os.close(lock_node(data, mode))
    return stat.S_IMODE(data.stat().st_mode)


def test_a_new_directory_is_for_its_user_alone_unless_something_else_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert mode_after_lock(tmp_path / "usual") == 0o700
    assert mode_after_lock(tmp_path / "shared", 0o750) == 0o750
    assert mode_after_lock(tmp_path / "shared", 0o750) == 0o750
    assert not caplog.records


def test_a_wider_one_that_was_there_is_told_and_not_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "wide"
    data.mkdir()
    data.chmod(0o755)
    assert mode_after_lock(data) == 0o755
    [line] = caplog.messages
    assert f"{data}: other users of this machine can read" in line
    assert f"chmod 700 {data}" in line


def test_who_names_a_ray_that_is_down_is_not_told_to_start_the_node_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(NodeNotRunningError) as caught:
        Node(tmp_path / "data", NodeOptions(ray_address=address))
    told = str(caught.value)
    assert told.startswith(f"the Ray at {address} does not answer (")
    assert "start it first (ray start --head)" in told
    assert "rocketray start" not in told
