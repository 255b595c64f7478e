"""``filter preview`` and ``filter check --topic``, beside a node or without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import printed, rocketray
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
    [found] = printed(rocketray(*arguments, "--json"))
    numbers = [found[name] for name in ("held", "scanned", "matched", "rejected", "failed")]
    assert numbers == [5, 5, 4, 1, 0]
    assert [message["properties"]["amount"] for message in found["messages"]] == ["15", "15.5"]
    [found] = printed(rocketray(*arguments, "--json", "--dialect", "rocketmq"))
    numbers = [found[name] for name in ("held", "scanned", "matched", "rejected", "failed")]
    assert numbers == [5, 5, 3, 1, 1]
    assert found["failures"] == {"evaluationErrors": 1, "notInt32": 1}
    assert [message["properties"]["amount"] for message in found["messages"]] == ["15", "25"]
    assert found["bytesRead"] > 100
    shown = rocketray(*arguments, "--max-scan", "2")
    assert shown.stdout.startswith("Trade/0@1")
    assert "only 2 of 5 messages were scanned" in shown.stdout


def test_a_filter_that_looks_like_a_slip_is_told(data: Path) -> None:
    arguments = ("filter", "preview", "Trade", "amont > 100", "--data", data, "--json")
    shown = rocketray(*arguments)
    assert [found["matched"] for found in printed(shown)] == [0]
    assert "warning: topic Trade, " in shown.stderr
    assert "did you mean amount?" in shown.stderr


def test_every_kind_of_failure_is_named(data: Path) -> None:
    arguments = ("filter", "preview", "Trade", "TRUE = amount", "--data", data, "--json")
    [found] = printed(rocketray(*arguments))
    assert found["failures"] == {"evaluationErrors": 5, "booleanWithText": 5}


def test_wrong_usage_and_missing_topics_end_with_their_codes(data: Path) -> None:
    twice = ("filter", "preview", "Trade", "a > 1", "--sql", "a > 1", "--data", data)
    assert rocketray(*twice).returncode == 2
    absent = rocketray("filter", "preview", "Absent", "a > 1", "--data", data)
    assert (absent.returncode, absent.stdout) == (1, "")
    assert "no topic 'Absent'" in absent.stderr


def test_a_check_compares_with_recent_messages(data: Path) -> None:
    expression = "amount > 10 AND regoin = 'eu'"
    arguments = ("filter", "check", expression, "--topic", "Trade", "--data", data, "--json")
    [found] = printed(rocketray(*arguments))
    assert [warning["code"] for warning in found["warnings"]] == ["never-seen"]
    [found] = printed(rocketray(*arguments, "--dialect", "rocketmq"))
    assert [warning["code"] for warning in found["warnings"]] == ["never-seen", "will-fail"]
    assert "fails on 1 of the last 5 messages" in found["warnings"][1]["message"]
