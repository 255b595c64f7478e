"""``filter eval``: one answer a line, whatever the line is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.commands import rocketray

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
