"""How a stock app finds its node, and what it is told where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import faust
import pytest
from support.nodes import stock_apps
from yarl import URL

from rocketray.base.cluster import Cluster
from rocketray.errors import ConfigError, NodeNotRunningError
from rocketray.topology import connection
from rocketray.topology.app.app import App
from rocketray.topology.stock.transport import Transport, node_of_broker

assert stock_apps  # it makes the transport known, as the installed package does


@pytest.mark.proves("stock-faust", "The URL or the environment names the node's data directory")
def test_the_node_is_named_by_its_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETRAY_DATA", "/from/environment")
    assert node_of_broker(URL("rocketray:///data/node")) == Path("/data/node")
    assert node_of_broker(URL("rocketray://")) == Path("/from/environment")


@pytest.mark.proves(
    "stock-faust",
    "The URL names a cluster, and an app on any machine reads the queues of all disks, also of "
    "those that move",
)
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


@pytest.mark.parametrize("kind", [App, partial(faust.App, broker="rocketray://")])
def test_what_connects_at_the_same_time_shares_one_connection(
    monkeypatch: pytest.MonkeyPatch, kind: Callable[[str], Any]
) -> None:
    """Of two, one would never be closed."""
    opened: list[object] = []

    async def open_slowly(_: object) -> object:
        await asyncio.sleep(0)
        opened.append(object())
        return opened[-1]

    async def connect_twice() -> list[object]:
        app = kind("twice")
        connect = app.connect if isinstance(app, App) else app.transport.connect
        return [*await asyncio.gather(connect(), connect())]

    monkeypatch.setattr(connection, "open_node", open_slowly)
    assert asyncio.run(connect_twice()) == [opened[0]] * 2
    assert len(opened) == 1
