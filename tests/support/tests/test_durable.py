"""The watch over commits accuses who commits too early, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.harness.durable import CommitWatch, Input
from support.nodes.local_node import LocalNode

from rocketray.message import StoredMessage


def number(message: StoredMessage) -> Input:
    return Input("T", 0, int(message.body))


def test_only_what_a_commit_covers_has_to_be_on_disk(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        LocalNode(data) as node,
        node.producer() as memory,
        node.producer(ack="disk") as disk,
    ):
        node.topics.ensure("Out", 1)
        watch = CommitWatch(node, monkeypatch, number, "Out", "Later")
        disk.send("Out", b"0")
        memory.send("Out", b"1")
        watch.look({("T", 0): 1, ("T", 1): 9, ("U", 0): 9})
        assert (watch.seen, watch.endangered) == (2, [])
        watch.look({("T", 0): 2})
        assert [message.body for message in watch.endangered] == [b"1"]
        watch.endangered.clear()
        node.shard("Out", 0).flush()
        watch.look({("T", 0): 2})
        assert not watch.endangered
