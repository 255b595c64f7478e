"""Names of members: whose they are can be read, and no two are the same."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from support.nodes.local_node import LocalNode

from rocketray.errors import ConfigError
from rocketray.filters.subscription import Subscription
from rocketray.groups.member_options import new_client_id

ALL = Subscription.tags("*")


def own_prefix() -> str:
    return f"{socket.gethostname()}@{os.getpid()}#"


def test_a_member_without_a_name_is_called_by_its_host_and_process(tmp_path: Path) -> None:
    with LocalNode(tmp_path / "data") as node:
        node.topics.ensure("Trade", 2)
        with node.consumer("g", "Trade", ALL), node.remote_consumer("g", "Trade", ALL):
            (group,) = node.groups.all()
            names = list(group.members)
    assert len(set(names)) == 2
    assert all(name.startswith(own_prefix()) for name in names), names


def test_new_names_differ_within_a_process() -> None:
    assert len({new_client_id() for _ in range(1000)}) == 1000


def test_a_unit_follows_as_in_rocketmq() -> None:
    name = new_client_id("http://web1:6066")
    assert name.startswith(own_prefix())
    assert name.endswith("@http://web1:6066")


def test_a_name_is_checked_whatever_the_host_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "my @host#1\n")
    assert new_client_id().startswith(f"my--host-1-@{os.getpid()}#")
    with pytest.raises(ConfigError, match="1 to 255 printable"):
        new_client_id("x" * 300)
