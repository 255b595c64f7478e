"""``filter check``, ``filter preview``, ``filter eval``: over stores, beside a node or without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.harness.command_server import run_here
from support.harness.commands import rocketray
from support.nodes.local_node import LocalNode

from rocketray.cli.filters.filter_commands import evaluate


@pytest.mark.parametrize(
    ("expression", "properties", "result"),
    [
        ("a > 5", {"a": "7"}, True),
        ("a > 5", {"a": "3"}, False),
        ("a > 5", {}, None),
        ("a > 5", None, None),
        ("a > 5", {"a": "x"}, "error"),
        ("a >", {"a": "7"}, "parse-error"),
        ("a = '\ud800'", {"a": "\ud800"}, True),
    ],
)
def test_sql92(expression: str, properties: dict[str, str] | None, result: object) -> None:
    answer = evaluate({"expr": expression, "props": properties})
    assert answer["result"] == result
    assert (answer["message"] is None) == (result in (True, False, None))


@pytest.mark.parametrize(
    ("request_", "of_rocketmq"),
    [
        ({"expr": "\"a.b\" LIKE 'x%'", "props": {"a.b": "xy"}}, "parse-error"),
        ({"expr": "amount BETWEEN 100 AND 500", "props": {"amount": "120.0"}}, "error"),
    ],
)
def test_a_line_without_a_dialect_is_in_ours(request_: dict[str, Any], of_rocketmq: str) -> None:
    assert evaluate(request_)["result"] is True
    assert evaluate({**request_, "dialect": "rocketray"})["result"] is True
    assert evaluate({**request_, "dialect": "rocketmq"})["result"] == of_rocketmq
    assert evaluate({**request_, "dialect": "oracle"})["result"] == "parse-error"


@pytest.mark.parametrize(
    ("expression", "tag", "broker", "consumer"),
    [
        ("TagA || TagB", "TagB", True, True),
        ("TagA || TagB", "TagC", False, False),
        ("Aa", "BB", True, False),
        ("*", None, True, True),
        (None, None, True, True),
        ("TagA", None, False, False),
    ],
)
def test_tags_in_two_steps(
    expression: str | None, tag: str | None, *, broker: bool, consumer: bool
) -> None:
    answer = evaluate({"type": "TAG", "expr": expression, "tag": tag})
    assert answer == {"broker": broker, "consumer": consumer}


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"expr": None},
        {"expr": 5},
        {"expr": "a > 5", "type": "XPATH"},
        {"expr": "a > 5", "props": {"a": 5}},
        {"expr": "a > 5", "props": ["a"]},
        {"expr": "||", "type": "TAG", "tag": "a"},
        {"expr": "a", "type": "TAG", "tag": 5},
    ],
)
def test_what_cannot_be_evaluated_is_a_parse_error(request_: dict[str, Any]) -> None:
    answer = evaluate(request_)
    assert answer["result"] == "parse-error"
    assert answer["message"]


def test_every_line_is_answered_in_order_and_the_exit_code_is_0() -> None:
    lines = ['{"expr": "a = 1", "props": {"a": "1"}}', "nonsense", "", '{"expr": "("}']
    done = rocketray("filter", "eval", stdin="\n".join(lines))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["result"] for answer in answers] == [True, "parse-error", "parse-error"]
    assert "line 2" in answers[1]["message"]
    assert (done.returncode, done.stderr) == (0, "")


def test_lone_surrogates_come_back_as_escapes() -> None:
    done = rocketray("filter", "eval", stdin='{"expr": "\\ud800 >"}')
    assert "\\ud800" in done.stdout
    assert done.returncode == 0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("node") / "data"
    with LocalNode(directory) as node:
        node.topics.ensure("Trade", 2)
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


def test_rejected_shows_failures_too_and_counts_them_apart(data: Path) -> None:
    arguments = "filter", "preview", "Trade", "amount > 10", "--dialect", "rocketmq", "--data", data
    [found] = run_here(*arguments, "--rejected", "--json").lines()
    assert (found["rejected"], found["failed"]) == (1, 1)
    shown = [(one["properties"]["amount"], one["verdict"]) for one in found["messages"]]
    assert shown == [("5", "sql_false"), ("15.5", "sql_error")]
    [found] = run_here(*arguments, "--failed", "--json").lines()
    assert [one["verdict"] for one in found["messages"]] == ["sql_error"]
    both = run_here(*arguments, "--rejected", "--failed")
    assert (both.code, both.out) == (2, "")
    assert "--rejected shows those of --failed, too; give one" in both.err
    said = " ".join(run_here("filter", "preview", "--help").out.split())
    assert "The number of rejected ones is without those that failed." in said


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
    assert "fails on 1 of 5 recent messages" in found["warnings"][1]["message"]


def test_an_expression_comes_back_with_warnings() -> None:
    done = run_here("filter", "check", "((a>5)) and NOT b = 'x'")
    assert done.code == 0
    first, *warnings = done.out.splitlines()
    assert first == "a > 5 AND NOT b = 'x'"
    assert warnings[0].startswith("never-true: ") or warnings[0].startswith("not-binds-tight: ")
    assert warnings[-1] == "dialect: rocketray"
    [found] = run_here("filter", "check", "a > 5 AND a < 3", "--json").lines()
    assert found["valid"] is True
    assert (found["dialect"], found["dialectRules"]) == ("rocketray", 2)
    assert found["canonical"] == "a > 5 AND a < 3"
    assert found["properties"] == ["a"]
    assert [warning["code"] for warning in found["warnings"]] == ["never-true"]


def test_a_syntax_error_has_a_caret_and_ends_with_1() -> None:
    done = run_here("filter", "check", "a > 5 AND")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-1].strip() == "^"
    done = run_here("filter", "check", "a >> 5", "--json")
    assert done.code == 1
    assert '"valid": false' in done.out
    assert '"start": 3' in done.out


def test_the_dialect_decides_what_can_be_true() -> None:
    [ours] = run_here("filter", "check", "a > 5 AND a < 6", "--json").lines()
    assert ours["warnings"] == []  # 5.5
    theirs = run_here("filter", "check", "a > 5 AND a < 6", "--dialect", "rocketmq")
    first, warning, last = theirs.out.splitlines()
    assert first == "a > 5 AND a < 6"
    assert warning.startswith("never-true: ")
    assert last == "dialect: rocketmq"


@pytest.mark.parametrize("written", ["pay, ship", "pay|ship"])
def test_tags_that_look_like_several_are_one(written: str) -> None:
    """The hint is the one of ``consume``."""
    done = run_here("filter", "check", "--tags", written)
    first, warning = done.out.splitlines()
    assert (done.code, first) == (0, f"tags: {written!r}")
    assert warning == (
        f"one-tag: {written!r} is one tag, since only || separates tags; write pay || ship"
    )
    [found] = run_here("filter", "check", "--tags", written, "--json").lines()
    assert (found["valid"], found["tags"]) == (True, [written])
    assert [each["code"] for each in found["warnings"]] == ["one-tag"]


def test_tags_without_a_slip_are_shown_one_by_one() -> None:
    assert run_here("filter", "check", "--tags", "ship || pay").out == "tags: 'pay', 'ship'\n"
    assert run_here("filter", "check", "--tags", "*").out == "tags: all messages\n"
    assert run_here("filter", "check", "--tags", " || ").out.startswith("tags: none\nnever-true: ")


def test_one_filter_is_checked_at_a_time() -> None:
    for arguments in ((), ("a > 5", "--tags", "pay")):
        done = run_here("filter", "check", *arguments)
        assert (done.code, "give one of an SQL92 expression, --tags and --filter" in done.err) == (
            2,
            True,
        )
