"""``filter preview`` and ``filter check --topic``, beside a node or without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_server import run_here
from support.local_node import LocalNode


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("node") / "data"
    with LocalNode(directory) as node:
        node.create_topic("Trade", 2)
        with node.producer() as producer:
            for amount in ("5", "15", "15.5", "25", "35"):
                producer.send("Trade", b"", properties={"amount": amount}, queue_id=0)
    return directory


def test_a_preview_counts_and_shows(data: Path) -> None:
    arguments = ("filter", "preview", "Trade", "amount > 10", "--limit", "2", "--data", data)
    [found] = run_here(*arguments, "--json").lines()
    numbers = [found[name] for name in ("held", "scanned", "matched", "rejected", "failed")]
    assert numbers == [5, 5, 4, 1, 0]
    assert [message["properties"]["amount"] for message in found["messages"]] == ["15", "15.5"]
    [found] = run_here(*arguments, "--json", "--dialect", "rocketmq").lines()
    numbers = [found[name] for name in ("held", "scanned", "matched", "rejected", "failed")]
    assert numbers == [5, 5, 3, 1, 1]
    assert found["failures"] == {"evaluationErrors": 1, "notInt32": 1}
    assert [message["properties"]["amount"] for message in found["messages"]] == ["15", "25"]
    assert found["bytesRead"] > 100
    shown = run_here(*arguments, "--max-scan", "2")
    assert shown.out.startswith("Trade/0@1")
    assert "only 2 of 5 messages were scanned" in shown.out


def test_a_filter_that_looks_like_a_slip_is_told(data: Path) -> None:
    arguments = ("filter", "preview", "Trade", "amont > 100", "--data", data, "--json")
    shown = run_here(*arguments)
    assert [found["matched"] for found in shown.lines()] == [0]
    assert "warning: topic Trade, " in shown.err
    assert "did you mean amount?" in shown.err


def test_every_kind_of_failure_is_named(data: Path) -> None:
    arguments = ("filter", "preview", "Trade", "TRUE = amount", "--data", data, "--json")
    [found] = run_here(*arguments).lines()
    assert found["failures"] == {"evaluationErrors": 5, "booleanWithText": 5}


def test_wrong_usage_and_missing_topics_end_with_their_codes(data: Path) -> None:
    twice = ("filter", "preview", "Trade", "a > 1", "--sql", "a > 1", "--data", data)
    assert run_here(*twice).code == 2
    absent = run_here("filter", "preview", "Absent", "a > 1", "--data", data)
    assert (absent.code, absent.out) == (1, "")
    assert "no topic 'Absent'" in absent.err


def test_a_check_compares_with_recent_messages(data: Path) -> None:
    expression = "amount > 10 AND regoin = 'eu'"
    arguments = ("filter", "check", expression, "--topic", "Trade", "--data", data, "--json")
    [found] = run_here(*arguments).lines()
    assert [warning["code"] for warning in found["warnings"]] == ["never-seen"]
    [found] = run_here(*arguments, "--dialect", "rocketmq").lines()
    assert [warning["code"] for warning in found["warnings"]] == ["never-seen", "will-fail"]
    assert "fails on 1 of the last 5 messages" in found["warnings"][1]["message"]
