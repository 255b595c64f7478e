"""Readers of files know which queues of a topic are not in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.harness.command_server import run_here
from support.nodes.local_node import LocalNode

from rocketray.broker.disks.joined_cluster import JoinedCluster, write_joined
from rocketray.broker.topics.catalog import TopicCatalog
from rocketray.errors import NodeElsewhereError
from rocketray.messaging.api.queues_here import queues_in, queues_of
from rocketray.runtime.files.home import settle_identity

FAR = "00000000-0000-0000-0000-000000000002"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a node that ended, in whose catalog queues 1 and 3 are on another disk."""
    data = tmp_path / "data"
    with LocalNode(data) as node:
        node.topics.ensure("Trade", 4)
        node.topics.ensure("Alone", 1)
        with node.producer() as producer:
            for queue in range(4):
                producer.send("Trade", b"x", properties={"amount": "7"}, queue_id=queue)
    catalog = TopicCatalog.load(data)
    spread = replace(catalog.get("Trade"), disks=("", FAR, "", FAR))
    replace(catalog, topics={**catalog.topics, "Trade": spread}).save(data)
    return data


def test_the_catalog_says_which_queues_are_elsewhere(data: Path, tmp_path: Path) -> None:
    here = queues_in(data, "Trade")
    assert (here.queues, here.elsewhere) == ((0, 2), (1, 3))
    assert here.note().startswith("2 of 4 queues of topic Trade were read; on other disks: 1, 3;")
    assert here.note(0) == ""
    with pytest.raises(NodeElsewhereError, match="queue 3 of topic 'Trade' is not in"):
        here.note(3)
    assert queues_in(data, "Alone").note() == queues_in(data, "Unknown").note() == ""
    assert queues_in(tmp_path / "store", "Trade").note() == ""


def test_a_disk_that_joined_has_the_queues_of_its_own_name(data: Path) -> None:
    own = settle_identity(data)
    write_joined(data, JoinedCluster("orders", FAR))
    with pytest.raises(NodeElsewhereError, match="none of the 4 queues of topic 'Trade' is in"):
        queues_in(data, "Trade")
    catalog = TopicCatalog.load(data)
    moved = replace(catalog.get("Trade"), disks=("", own, "", FAR))
    replace(catalog, topics={"Trade": moved}).save(data)
    assert queues_in(data, "Trade").elsewhere == (0, 2, 3)


def test_all_disks_of_a_machine_are_here(data: Path) -> None:
    def at(disk: str) -> Any:
        def files(_: str) -> Path:
            if disk in away:
                raise NodeElsewhereError("elsewhere")
            return data / disk

        return SimpleNamespace(files=files)

    node: Any = SimpleNamespace(at=at)
    topic = TopicCatalog.load(data).get("Trade")
    away = {FAR}
    assert queues_of(node, topic).elsewhere == (1, 3)
    away.clear()
    both = queues_of(node, topic)
    assert (both.directories, both.elsewhere) == ((data, data / FAR), ())
    away |= {"", FAR}
    with pytest.raises(NodeElsewhereError, match="is on this machine"):
        queues_of(node, topic)


def test_a_preview_and_a_comparison_name_what_they_leave_out(data: Path) -> None:
    at = "--data", str(data)
    for command in (("preview", "Trade", "amount > 5"), ("diff", "Trade", "amount > 5", "n = 1")):
        shown = run_here("filter", *command, *at)
        assert "warning: 2 of 4 queues of topic Trade were read; on other disks: 1, 3" in shown.err
        [record] = run_here("filter", *command, *at, "--json").lines()
        assert record["queuesElsewhere"] == [1, 3]
        refused = run_here("filter", *command, *at, "--queue", "1")
        assert refused.code == 1
        assert "but on another disk" in refused.err
        refused = run_here("--cluster", "orders", "filter", *command, *at)
        assert refused.code == 1
        assert "and --cluster orders name two nodes; leave one out" in refused.err
