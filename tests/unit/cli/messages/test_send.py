"""What ``rocketray send`` tells of one message, over a node in this process."""

from __future__ import annotations

import re

import pytest
from support.harness.command_server import run_here
from support.nodes.local_node import LocalNode

from rocketray.cli.terminal.output import as_time


@pytest.fixture
def node(node: LocalNode) -> LocalNode:
    node.topics.ensure("Trade", 1)
    return node


def test_a_message_is_told_with_its_place_id_and_unique_key(node: LocalNode) -> None:
    done = run_here("send", "Trade", "paid", "--key", "order-17")
    told = re.fullmatch(r"stored at Trade/0@0  id (\w+)  unique key (\w+)\n", done.out)
    assert told, done
    stored = node.messages.at("Trade", 0, 0)
    assert stored is not None
    assert stored.unique_key == told[2]


def test_a_delayed_message_is_told_with_its_topic_and_when_it_is_due(node: LocalNode) -> None:
    due_ms = node.clock_ms() + 3_600_000
    done = run_here("send", "Trade", "later", "--deliver-at", str(due_ms))
    first, second = done.out.splitlines()
    assert first.startswith(f"waits for topic Trade until {as_time(due_ms)}  id ")
    assert "  unique key " in first
    assert second.startswith("recall it with: rocketray recall ")
