"""The processor time of tests: the phases of a test add up, and the most is first."""

from __future__ import annotations

import pytest
from support.harness.processor_time import ProcessorTime


def report(name: str, seconds: float) -> pytest.TestReport:
    found = pytest.TestReport(name, ("t.py", 1, name), {}, "passed", None, "call")
    found.user_properties = [("processor_s", seconds)]
    return found


def test_set_up_call_and_teardown_add_up_and_the_most_is_first() -> None:
    tests = ProcessorTime()
    for name, seconds in (("a", 1.0), ("b", 2.0), ("a", 1.5)):
        tests.pytest_runtest_logreport(report(name, seconds))
    assert tests.most() == [("a", 2.5), ("b", 2.0)]
