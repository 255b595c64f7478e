"""``rocketray groups members`` of a node with real members."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.harness.command_server import Done, run_here
from support.models.heartbeats import beat
from support.nodes.local_node import LocalNode
from support.nodes.serving_node import serving

from rocketray import __version__
from rocketray.filters.subscription import Subscription
from rocketray.runtime.clock import system_clock_ms

pytestmark = pytest.mark.proves(
    "groups", "`groups members` lists the members with their releases, and marks different ones"
)
PAY = Subscription.tags("pay")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as node, serving(node):
        node.topics.ensure("Trade", 2)
        yield node


def run(node: LocalNode, *arguments: str) -> Done:
    return run_here("groups", "members", *arguments, "--data", str(node.data))


def test_a_member_has_its_process_its_release_and_its_filter(node: LocalNode) -> None:
    begun_ms = system_clock_ms()
    with node.consumer("audit", "Trade", PAY, client_id="desk") as member:
        member.poll()
        member.beat()
        [record] = run(node, "audit", "--json").lines()
        shown = run(node, "audit").out
    [found] = record.pop("members")
    assert record == {
        "group": "audit",
        "topic": "Trade",
        "isBroadcast": False,
        "subscription": PAY.to_json(),
        "releases": {__version__: 1},
    }
    assert begun_ms <= found.pop("joinedMs") <= system_clock_ms()
    assert found.pop("silentMs") >= 0
    assert found == {
        "clientId": "desk",
        "machine": socket.gethostname(),
        "pid": os.getpid(),
        "release": __version__,
        "queues": [0, 1],
        "reads": [0, 1],
        "subscription": PAY.to_json(),
    }
    head, columns, _, row = shown.splitlines()[:4]
    assert head == "group audit, topic Trade, tags 'pay'"
    assert columns.split()[:5] == ["member", "machine", "process", "release", "joined"]
    parts = re.split(" {2,}", row)
    assert parts[:4] == ["desk", socket.gethostname(), str(os.getpid()), __version__]
    assert re.fullmatch(r"\d+\.\d s ago", parts[5]), parts
    assert parts[6:] == ["0 1", "tags 'pay'"]
    assert "different" not in shown


def test_members_of_different_releases_are_marked(node: LocalNode) -> None:
    other = replace(beat("other"), group="audit", topic="Trade", release="0.0.9", machine="web2")
    with node.consumer("audit", "Trade", PAY, client_id="desk") as member:
        member.poll()
        node.sessions.heartbeat(other)
        node.sessions.heartbeat(replace(other, member="older", release="", machine=""))
        done = run(node)
    assert re.search(r"^other +web2 +unknown +0\.0\.9 ", done.out, re.MULTILINE), done.out
    assert re.search(r"^older +unknown +unknown +unknown ", done.out, re.MULTILINE), done.out
    assert (
        f"the members are of different releases: 1 member of 0.0.9, 1 member of {__version__}, "
        "1 member of an unknown release"
    ) in done.out.splitlines()


def test_queues_that_a_member_reads_and_does_not_own_any_more_are_named(node: LocalNode) -> None:
    owner = replace(beat("owner"), group="audit", topic="Trade")
    node.sessions.heartbeat(owner)
    node.sessions.heartbeat(replace(owner, held=frozenset({0, 1}), number=owner.number + 1))
    lost = replace(beat("lost", {0, 1}), group="audit", topic="Trade")  # it was silent for too long
    node.sessions.heartbeat(lost)
    out = run(node, "audit").out
    assert re.search(r"^owner .*  0 1 +tags", out, re.MULTILINE), out
    assert re.search(r"^lost .*  none, releases 0 1  tags", out, re.MULTILINE), out


def test_a_group_without_members_says_so(node: LocalNode) -> None:
    node.consumer("audit", "Trade", PAY).close()
    assert run(node, "audit").out == "group audit, topic Trade, tags 'pay': no members\n"
    [record] = run(node, "--json").lines()
    assert (record["releases"], record["members"]) == ({}, [])
    assert "there is no group 'audt'" in run(node, "audt").err
