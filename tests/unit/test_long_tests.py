"""The judge of long tests: set-up and teardown count, load excuses, and a reason is accepted."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from support.long_tests import LIMIT_S, LongTests
from support.source_tree import ROOT

Phase = Literal["setup", "call", "teardown"]


def report(seconds: float, phase: Phase = "call", *marks: str) -> pytest.TestReport:
    """The report of one phase of the test ``t.py::t``."""
    keywords: dict[str, Literal[1]] = dict.fromkeys(("t.py", "t", *marks), 1)
    return pytest.TestReport(
        "t.py::t", ("t.py", 1, "t"), keywords, "passed", None, phase, duration=seconds
    )


def judged(*reports: pytest.TestReport, load: float = 1.0) -> dict[str, float]:
    tests = LongTests(lambda: load)
    for each in reports:
        tests.pytest_runtest_logreport(each)
    return tests.too_long()


def test_set_up_call_and_teardown_count_together() -> None:
    third = LIMIT_S / 3
    phases = report(third, "setup"), report(third), report(third, "teardown")
    assert judged(*phases) == {}
    assert judged(*phases, report(1.0)) == {"t.py::t": LIMIT_S + 1.0}


@pytest.mark.parametrize("mark", ["long", "slow"])
def test_a_test_that_says_why_may_be_long(mark: str) -> None:
    assert judged(report(10 * LIMIT_S, "call", mark)) == {}


def test_a_second_counts_for_less_on_a_machine_with_other_work() -> None:
    assert judged(report(2 * LIMIT_S), load=2.0) == {}
    assert judged(report(2 * LIMIT_S), load=1.5) != {}
    assert judged(report(2 * LIMIT_S), load=0.1) == {"t.py::t": 2 * LIMIT_S}


def test_every_long_test_says_why() -> None:
    without = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r'mark\.long\b(?!\(\s*reason="[^"]{20,}"\s*\))', path.read_text())
    ]
    assert without == []
