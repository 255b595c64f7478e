"""What a run did not test: counted beside what passed, or a failure where the machine must have it.

pytest's last line counts ``N not tested`` for the tests that skipped because of the machine
(support/harness/machine.py), and the lines before it say which, and why. With ``ROCKETRAY_TEST_REQUIRE=all``
in the environment, the full form of the gate, each skip is a failure, but for those of ALLOWED.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

ALLOWED = {
    "test_completion_asks_for_the_package_that_it_needs_as_with_stock_faust": (
        "no extra of ours brings click_completion, but a person's environment may have it"
    ),
}
"""The tests that may skip in the full form, with the reason."""
_REASON = re.compile(r"NOT TESTED (?P<what>.+ \(.+?\)): (?P<why>.*)")
_STATE = "not tested"


def is_required() -> bool:
    """Return whether this is the full form."""
    return os.environ.get("ROCKETRAY_TEST_REQUIRE") == "all"


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test was skipped; "" if it was not, or is expected to fail."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return ""
    found = report.longrepr
    return str(found[2] if isinstance(found, tuple) else found).removeprefix("Skipped: ")


class NotTested:
    """The pytest plugin."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, str]]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Fail a test that skips where all is required."""
        report = yield
        reason = reason_of(report)
        if reason and is_required() and getattr(item, "originalname", "") not in ALLOWED:
            report.outcome = "failed"
            report.longrepr = f"{reason}\nROCKETRAY_TEST_REQUIRE=all: this is to be tested here"
        return report

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Count it for the last line; a module that skips as a whole counts there as well."""
        return (_STATE, "n", "NOT TESTED") if _REASON.match(reason_of(report)) else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what it needs."""
        if found := _REASON.match(reason_of(report)):
            self._counts[found["what"], found["why"]] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say it last."""
        for (what, why), count in sorted(self._counts.items()):
            tests = f"{count} test{'s' if count > 1 else ''}"
            terminalreporter.write_line(f"NOT TESTED {what}, {tests}: {why}", yellow=True)
