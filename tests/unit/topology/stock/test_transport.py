"""How a stock app finds its node, and what it is told where there is none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import faust
import pytest
from support.nodes import stock_apps
from yarl import URL

from rocketray.base.cluster import Cluster
from rocketray.errors import ConfigError, NodeNotRunningError
from rocketray.topology.stock.transport import Transport, node_of_broker

assert stock_apps  # it makes the transport known, as the installed package does


def test_the_node_is_named_by_its_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETRAY_DATA", "/from/environment")
    assert node_of_broker(URL("rocketray:///data/node")) == Path("/data/node")
    assert node_of_broker(URL("rocketray://")) == Path("/from/environment")


def test_the_url_names_a_cluster_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert node_of_broker(URL("rocketray://?cluster=Orders")) == Cluster("Orders")
    there = URL("rocketray://?cluster=o&ray_address=10.0.0.1:6379")
    assert node_of_broker(there) == Cluster("o", "10.0.0.1:6379")
    monkeypatch.setenv("ROCKETRAY_CLUSTER", "of-environment")
    assert node_of_broker(URL("rocketray://")) == Cluster("of-environment")
    with pytest.raises(ConfigError, match="are both given; name one"):
        node_of_broker(URL("rocketray:///data?cluster=o"))
    with pytest.raises(ConfigError, match="names 'clutser'; name a node's data directory"):
        node_of_broker(URL("rocketray://?clutser=o"))


def test_another_machine_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name a node's data directory"):
        node_of_broker(URL("rocketray://elsewhere:9092"))
    app = faust.App("far", broker=f"rocketray://{tmp_path}/none")
    assert isinstance(app.transport, Transport)
    with pytest.raises(NodeNotRunningError) as raised:
        asyncio.run(app.transport.connect())
    told = f"no node runs on {tmp_path}/none; start one with: rocketray start --data"
    assert str(raised.value).startswith(told)
    assert "rocketray.App" not in str(raised.value)  # that is not offered elsewhere either
