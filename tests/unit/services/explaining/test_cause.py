"""The causes are what the command's help and the reference page say that they are."""

from __future__ import annotations

import re

import pytest
from support.harness.source_tree import ROOT

from rocketray.cli.filters.explain import explain
from rocketray.filters.verdict_values import FilterReason
from rocketray.services.explaining.cause import Cause, time_text

PAGE = ROOT / "docs/reference/groups.md"
CAUSES = [(cause.value, cause.meaning) for cause in Cause]


@pytest.mark.proves("groups", "The page and the help of `explain` list the same causes")
def test_the_reference_page_has_each_cause_and_no_other() -> None:
    table = PAGE.read_text().partition("| cause | what it says |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE) == CAUSES


def test_the_help_of_the_command_has_each_cause_and_no_other() -> None:
    text = (explain.__doc__ or "").partition("The cause is one of")[2].partition("\n\n")[0]
    assert re.findall(r"^ +(\w+) +(\S.*)$", text, re.MULTILINE) == CAUSES


def test_each_reason_of_a_filter_is_a_cause() -> None:
    reasons = {reason.name for reason in FilterReason} - {"MATCHED"}
    assert reasons <= {cause.name for cause in Cause}
    assert all(FilterReason[name].value == Cause[name].value for name in reasons)


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [(0, "1970-01-01T00:00:00.000+00:00"), (-1, "-1 ms"), (2**62, f"{2**62} ms")],
)
def test_times_that_no_calendar_has_are_numbers(time_ms: int, text: str) -> None:
    assert time_text(time_ms) == text
