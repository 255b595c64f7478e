"""A queue whose store cannot be opened stays closed, alone, and everybody who asks is told why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import printed, rocketray, start_node, stop_node

from rocketray.actors.files.paths import shard_directory

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def test_one_damaged_store_stops_neither_the_node_nor_its_neighbours(tmp_path: Path) -> None:
    data = tmp_path / "data"
    where = "--data", str(data)
    node = start_node(data, tmp_path / "first")
    try:
        printed(rocketray("topics", "create", "Trade", "--queues", "2", "--json", *where))
        printed(rocketray("send", "Trade", "before", "--queue", "1", "--json", *where))
    finally:
        stop_node(node)
    identity = shard_directory(data, "Trade", 0) / "store.json"
    whole = identity.read_bytes()
    identity.write_bytes(whole[: len(whole) // 2])
    offsets = [data / "config" / f"consumerOffset.json{suffix}" for suffix in ("", ".bak")]
    for file in offsets:
        file.write_bytes(b"{")

    node = start_node(data, tmp_path / "second")
    try:
        status = rocketray("status", "--json", *where)
        assert (status.returncode, status.stderr) == (1, ""), "groups are closed"
        closed, queue = [json.loads(line)["problem"] for line in status.stdout.splitlines()]
        assert closed.startswith("consumer groups are closed")
        assert str(offsets[0]) in closed
        assert queue.startswith("queue Trade/0 stays closed: ")
        assert "store.json" in queue
        refused = rocketray("send", "Trade", "x", "--queue", "0", *where)
        assert refused.returncode == 1
        assert "queue Trade/0 stays closed: " in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        printed(rocketray("send", "Trade", "after", "--queue", "1", "--json", *where))
        described = rocketray("topics", "describe", "Trade", *where)
        assert "queue Trade/0 stays closed: " in described.stdout + described.stderr
    finally:
        stop_node(node)

    identity.write_bytes(whole)
    for file in offsets:
        file.unlink()
    node = start_node(data, tmp_path / "third")
    try:
        assert printed(rocketray("status", "--json", *where)) == []
        printed(rocketray("send", "Trade", "again", "--queue", "0", "--json", *where))
    finally:
        stop_node(node)


def test_a_queue_whose_directory_is_missing_is_not_made_anew(tmp_path: Path) -> None:
    data = tmp_path / "data"
    where = "--data", str(data)
    directory, elsewhere = shard_directory(data, "Trade", 0), tmp_path / "elsewhere"
    node = start_node(data, tmp_path / "first")
    try:
        printed(rocketray("topics", "create", "Trade", "--queues", "2", "--json", *where))
        for queue in "0", "1":
            printed(rocketray("send", "Trade", "x", "--queue", queue, "--json", *where))
    finally:
        stop_node(node)
    directory.rename(elsewhere)

    node = start_node(data, tmp_path / "second")
    try:
        status = printed(rocketray("status", "--json", *where))
        (problem,) = [line["problem"] for line in status if "problem" in line]
        assert problem.startswith(f"queue Trade/0 stays closed: {directory} is not there, and ")
        refused = rocketray("send", "Trade", "x", "--queue", "0", *where)
        assert refused.returncode == 1
        assert f"queue Trade/0 stays closed: {directory} is not there" in refused.stderr
        took = printed(
            rocketray("consume", "Trade", "--group", "audit", "--max", "1", "--json", *where)
        )
        assert [message["queueId"] for message in took] == [1]
    finally:
        stop_node(node)
    assert not directory.exists()

    elsewhere.rename(directory)
    node = start_node(data, tmp_path / "third")
    try:
        assert printed(rocketray("status", "--json", *where)) == []
        assert len(printed(rocketray("query", "Trade", "--from", "0", "--json", *where))) == 2
    finally:
        stop_node(node)
