"""A queue whose store cannot be opened stays closed, alone, and everybody who asks is told why."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.harness.command_server import CommandServer, Done
from support.harness.commands import ONE_PROCESS, start_node, stop_node

from rocketray.runtime.clock import system_clock_ms
from rocketray.runtime.files.paths import shard_directory
from rocketray.testing import Broker, Clock

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


class Commands:
    """Commands on a node that runs."""

    def __init__(self, server: CommandServer, data: Path) -> None:
        self._server = server
        self._data = data

    def __call__(self, *arguments: str) -> Done:
        return self._server(*arguments, "--data", self._data)


@contextmanager
def running(data: Path, log: Path) -> Iterator[Commands]:
    """A node on *data*, and the commands on it."""
    node = start_node(data, log, *ONE_PROCESS)
    try:
        with CommandServer(os.environ) as server:
            yield Commands(server, data)
    finally:
        stop_node(node)


@pytest.mark.proves("durability", "A queue without its directory stays closed")
@pytest.mark.parametrize("is_started_again", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_closed_queues_and_groups_stop_neither_the_node_nor_their_neighbours(
    tmp_path: Path, *, is_started_again: bool
) -> None:
    """In the long form with groups; test_cluster_state.py has what the coordinator says of them."""
    data = tmp_path / "data"
    damaged = shard_directory(data, "Trade", 0) / "store.json"
    missing, elsewhere = shard_directory(data, "Audit", 0), tmp_path / "elsewhere"
    with Broker(data, clock=Clock(system_clock_ms())) as before:
        for topic in "Trade", "Audit":
            before.topics.create(topic, 2, queues_per_process="shared")
            for queue_id in range(2):
                before.producer().send(topic, b"before", queue_id=queue_id)
    whole = damaged.read_bytes()
    for path in (damaged, damaged.with_name("store.json.bak")):
        path.write_bytes(whole[: len(whole) // 2])
    missing.rename(elsewhere)

    reasons = {
        "Audit/0": f"queue Audit/0 stays closed: {missing} is missing, and ",
        "Trade/0": "queue Trade/0 stays closed: ",
    }
    with running(data, tmp_path / "first") as run:
        told = sorted(
            line["problem"]
            for line in run("status", "--over", "0", "--json").lines()
            if "problem" in line
        )
        assert len(told) == len(reasons)
        for line, reason in zip(told, reasons.values(), strict=True):
            assert line.startswith(reason)
        assert "store.json" in told[1]
        for place, reason in reasons.items():
            topic, queue = place.split("/")
            refused = run("send", topic, "x", "--queue", queue)
            assert refused.code == 1
            assert reason in refused.err
            assert len(refused.err.splitlines()) == 1
            run("send", topic, "after", "--queue", "1", "--json").lines()
            described = run("topics", "describe", topic)
            assert reason in " ".join((described.out + described.err).split())
        took = run("consume", "Audit", "--group", "audit", "--max", "2", "--json").lines()
        assert [message["queueId"] for message in took] == [1, 1]
    assert not missing.exists()

    damaged.write_bytes(whole)
    elsewhere.rename(missing)
    if not is_started_again:
        with Broker(data, clock=Clock(system_clock_ms())) as after:
            for topic in "Trade", "Audit":
                assert [one.queue_id for one in after.stored(topic)].count(0) == 1
            assert after.committed("audit", "Audit")[1] == 2
        return
    offsets = [data / "config" / f"groups.json{suffix}" for suffix in ("", ".bak")]
    for file in offsets:
        file.write_bytes(b"{")
    with running(data, tmp_path / "second") as run:
        status = run("status", "--over", "0", "--json")
        assert (status.code, status.err) == (1, ""), "groups are closed"
        lines = [json.loads(line) for line in status.out.splitlines()]
        (problem,) = [line["problem"] for line in lines if "problem" in line]
        assert problem.startswith("consumer groups are closed")
        assert str(offsets[0]) in problem
        for topic in "Trade", "Audit":
            run("send", topic, "again", "--queue", "0", "--json").lines()
            assert len(run("query", topic, "--from", "0", "--json").lines()) == 4
