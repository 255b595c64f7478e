"""``filter check``: the expression as it was understood, warnings, and a caret."""

from __future__ import annotations

import pytest
from support.command_server import run_here


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
        assert (done.code, "give an SQL92 expression or --tags" in done.err) == (2, True)
