"""``rocketray producers`` of a node with real producers."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.harness.command_server import Done, run_here
from support.nodes.local_node import LocalNode
from support.nodes.serving_node import serving

from rocketray import __version__
from rocketray.broker.shards.shard_api import QueueProducer
from rocketray.errors import ShardUnavailableError
from rocketray.runtime.clock import system_clock_ms
from rocketray.services.health.connected_producers import (
    ConnectedProducer,
    ProducerReadings,
    read_producers,
)

pytestmark = pytest.mark.proves(
    "producers", "`rocketray producers` lists the processes that have a ring to a queue"
)
NOT_LISTED = (
    "not listed: producers on other machines than the queue that they send to; what Spark writes; "
    "and programs that have sent nothing yet"
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path) as node, serving(node):
        node.topics.ensure("Trade", 2)
        node.topics.ensure("Audit", 1)
        yield node


def run(node: LocalNode, *arguments: str) -> Done:
    return run_here("producers", *arguments, "--data", str(node.data))


def test_a_process_is_one_row_with_the_queues_that_it_sends_to(node: LocalNode) -> None:
    begun_ms = system_clock_ms()
    with node.producer() as producer, node.producer() as other:
        producer.send("Trade", b"1", queue_id=1)
        other.send("Trade", b"2", queue_id=1)
        other.send("Audit", b"3")
        [found] = run(node, "--json").lines()
        [of_one_topic] = run(node, "Audit", "--json").lines()
        shown = run(node).out
    [record] = found["producers"]
    assert begun_ms <= record.pop("sinceMs") <= record.pop("storedMs") <= system_clock_ms()
    program = record.pop("program")
    assert program
    assert record == {
        "machine": socket.gethostname(),
        "pid": os.getpid(),
        "release": __version__,
        "batches": 3,
        "queues": {"Audit": [0], "Trade": [1]},
    }
    assert found["unknown"] == {}
    assert found["notListed"] in NOT_LISTED
    [record] = of_one_topic["producers"]
    assert (record["queues"], record["batches"]) == ({"Audit": [0]}, 1)
    columns, _, row, last = shown.splitlines()
    assert columns.split()[:4] == ["machine", "process", "program", "release"]
    parts = re.split(" {2,}", row)
    assert parts[:3] == [socket.gethostname(), str(os.getpid()), program]
    assert parts[-2:] == ["3", "Audit 0, Trade 1"]
    assert last == NOT_LISTED


def test_without_producers_it_says_what_it_lists(node: LocalNode) -> None:
    with node.producer() as producer:
        producer.send("Trade", b"1")
    with node.producer():
        assert run(node).out.splitlines() == [
            "no producer on the machine of its queue",
            NOT_LISTED,
        ]
    assert run(node, "Trad").code == 1


def test_of_a_process_that_does_not_answer_the_producers_are_unknown(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = node.topics.get("Audit").process_of(0)
    calls = node.process_calls

    def asked(process: str) -> Any:
        if process == silent:
            raise ShardUnavailableError("shard process", "it starts")
        return calls(process)

    with node.producer() as producer:
        producer.send("Trade", b"1", queue_id=0)
        producer.send("Audit", b"2")
        monkeypatch.setattr(node, "process_calls", asked)
        found = read_producers(node)
    assert [each.queues for each in found.producers] == [{"Trade": [0]}]
    [(part, why)] = found.unknown.items()
    assert part == f"shard process {silent}"
    assert "it starts" in why


def test_what_a_ring_does_not_tell_is_unknown_for_the_whole_process(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings = [
        QueueProducer("Audit", 0, "web2", 17, "", "", 0, 4, 0),
        QueueProducer("Audit", 1, "web2", 17, "", "", 900, 5, 1000),
        QueueProducer("Gone", 0, "web2", 18, "", "", 1, 1, 1),
    ]

    class Calls:
        def producers(self) -> list[QueueProducer]:
            return rings

    monkeypatch.setattr(node, "process_calls", lambda _: Calls())
    expected = ConnectedProducer("web2", 17, "", "", 0, {"Audit": [0, 1]}, 9, 1000)
    assert read_producers(node, "Audit") == ProducerReadings([expected], {})
    monkeypatch.setattr(
        "rocketray.services.health.connected_producers.read_producers",
        lambda *_: ProducerReadings([expected], {"disk d2": "its machine does not answer"}),
    )
    _, _, row, unknown, _ = run(node).out.splitlines()
    assert re.split(" {2,}", row)[:5] == ["web2", "17", "unknown", "unknown", "unknown"]
    assert unknown == "unknown: disk d2: its machine does not answer"
