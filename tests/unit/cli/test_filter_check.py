"""``filter check``: the expression as it was understood, warnings, and a caret."""

from __future__ import annotations

from support.commands import printed, rocketray


def test_an_expression_comes_back_with_warnings() -> None:
    done = rocketray("filter", "check", "((a>5)) and NOT b = 'x'")
    assert done.returncode == 0
    first, *warnings = done.stdout.splitlines()
    assert first == "a > 5 AND NOT b = 'x'"
    assert warnings[0].startswith("never-true: ") or warnings[0].startswith("not-binds-tight: ")
    [found] = printed(rocketray("filter", "check", "a > 5 AND a < 3", "--json"))
    assert found["valid"] is True
    assert found["canonical"] == "a > 5 AND a < 3"
    assert found["properties"] == ["a"]
    assert [warning["code"] for warning in found["warnings"]] == ["never-true"]


def test_a_syntax_error_has_a_caret_and_ends_with_1() -> None:
    done = rocketray("filter", "check", "a > 5 AND")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].strip() == "^"
    done = rocketray("filter", "check", "a >> 5", "--json")
    assert done.returncode == 1
    assert '"valid": false' in done.stdout
    assert '"start": 3' in done.stdout
