"""What a node does before it has a Ray: it makes its directory for whom it is to be."""

from __future__ import annotations

import logging
import os
import socket
import stat
from pathlib import Path

import pytest

from rocketray.actors.cluster.node import Node, _settle_rules
from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.actors.files.node_lock import lock_node
from rocketray.errors import ConfigError, NodeNotRunningError


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


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o1777, 0])
def test_a_mode_that_shuts_the_node_out_is_refused(mode: int) -> None:
    with pytest.raises(ConfigError, match="not 700 to 777"):
        NodeOptions(data_mode=mode)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_fetch_port_that_does_not_exist_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match=f"fetch port {port} is not 1 to 65535"):
        NodeOptions(fetch_port=port)


def test_who_names_a_ray_that_is_down_is_not_told_to_start_the_node_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(NodeNotRunningError) as caught:
        Node(tmp_path / "data", NodeOptions(ray_address=address))
    told = str(caught.value)
    assert told.startswith(f"the Ray at {address} does not answer (")
    assert "start it first (ray start --head)" in told
    assert "rocketray start" not in told


@pytest.mark.parametrize("given", [{}, {"cluster": "orders"}, {"ray_address": "127.0.0.1:1"}])
def test_to_join_a_cluster_its_name_and_its_ray_are_needed(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs its name and its Ray: --cluster NAME and --ray-a"):
        NodeOptions(joins=True, **given)  # type: ignore[arg-type]


def test_a_start_warns_of_modules_that_were_hardly_meant_also_the_next_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for options in (NodeOptions(allow_predicates=("os", "shop.filters")), NodeOptions()):
        caplog.clear()
        assert _settle_rules(tmp_path, options).allowed == ("os", "shop.filters")
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert record.getMessage().startswith("--allow-predicates os lets every group run any ")
