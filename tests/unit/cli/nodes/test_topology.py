"""``rocketray topology`` prints the disks for people, and their numbers for programs."""

from __future__ import annotations

import pytest
from support.harness.command_server import run_here
from support.nodes.local_node import LocalNode

from rocketray.cli.nodes import topology


@pytest.mark.parametrize(
    ("free", "text"),
    [(5_000_000_000, "4.7 GiB"), (1536, "1.5 KiB"), (17, "17 B"), (0, "0 B"), (None, "-")],
)
def test_the_room_of_a_disk_is_a_size_as_people_read_it(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, free: int | None, text: str
) -> None:
    disk = {
        "disk": "a1b2", "name": "", "machine": "m1", "directory": "/srv", "zone": "",
        "state": "answers", "isCoordinator": True, "isDrained": False, "freeBytes": free,
        "queues": 2,
    }  # fmt: skip
    monkeypatch.setattr(topology, "disk_records", lambda *_: [disk])
    node.topics.ensure("Trade", 2)
    shown = run_here("topology").out.splitlines()
    assert shown[0].split()[-2:] == ["free", "queues"]
    [row] = [line for line in shown if line.startswith("a1b2")]
    at = shown[0].index("free") + len("free")
    assert row[:at].endswith(f" {text}"), "the column is aligned to the right"
    assert shown[-1].split() == ["Trade", "2"]
    first, *_ = run_here("topology", "--json").lines()
    assert first["freeBytes"] == free, "programs get bytes"
