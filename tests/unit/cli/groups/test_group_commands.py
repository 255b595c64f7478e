"""``rocketray groups export``, with and without a node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.harness.command_server import run_here
from support.nodes.apps import put
from support.nodes.local_node import LocalNode

from rocketray.filters.subscription import Subscription

pytestmark = pytest.mark.proves(
    "durability",
    "Topics and groups are as they were last answered, wherever the power fails; exported "
    "in RocketMQ's forms",
)


@pytest.mark.proves("groups", "`groups export` writes the files of a broker, and overwrites none")
def test_groups_are_exported_as_a_broker_keeps_them_and_nothing_is_overwritten(
    tmp_path: Path,
) -> None:
    data, target = tmp_path / "data", tmp_path / "broker" / "config"
    without = run_here("groups", "export", str(target), "--data", str(data))
    assert (without.code, target.exists()) == (1, False)
    assert "groups.json does not exist" in without.err
    with LocalNode(data) as node:
        node.topics.ensure("T", 2)
        put(node, "T", [b"one"])
        node.consumer("g", "T", Subscription.tags("a || b")).close()
    done = run_here("groups", "export", str(target), "--data", str(data), "--json").lines()
    offsets, groups = target / "consumerOffset.json", target / "subscriptionGroup.json"
    assert [each["file"] for each in done] == [str(groups), str(offsets)]
    assert json.loads(offsets.read_bytes()) == {"offsetTable": {"T@g": {"0": 0, "1": 0}}}
    [(name, group)] = json.loads(groups.read_bytes())["subscriptionGroupTable"].items()
    assert name == group["groupName"] == "g"
    assert sorted(path.name for path in target.iterdir()) == [offsets.name, groups.name]
    groups.unlink()
    again = run_here("groups", "export", str(target), "--data", str(data))
    assert again.code == 1
    assert f"{offsets} exists and is not overwritten" in again.err
    assert not groups.exists()
