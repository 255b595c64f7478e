"""Which tests use the processors: the twenty that used most, and no verdict.

The time is that of the test's process and of the processes that it started and that have ended, for
set-up, call and teardown: seconds of a processor, which a machine with other work changes little.
Processes of a Ray end with its last test, which is charged for them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from typing import Any

import pytest

_SHOWN = 20
_LONG_S = 120.0
_PROPERTY = "processor_s"


def _used_s() -> float:
    return sum(os.times()[:4])


class ProcessorTime:
    """The pytest plugin: the process of a test measures, the one that reports adds up."""

    def __init__(self) -> None:
        self._begun_s = 0.0
        self._seconds = defaultdict[str, float](float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, bool, bool]:
        """Begin with the set-up."""
        self._begun_s = _used_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add what a phase used to its report."""
        report = yield
        now_s = _used_s()
        report.user_properties = [*report.user_properties, (_PROPERTY, now_s - self._begun_s)]
        self._begun_s = now_s
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the phases."""
        for name, value in report.user_properties:
            if name == _PROPERTY:
                self._seconds[report.nodeid] += float(str(value))

    def most(self) -> list[tuple[str, float]]:
        """Return the tests that used most, with their seconds."""
        return sorted(self._seconds.items(), key=lambda each: -each[1])[:_SHOWN]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print them, unless the run was a short one."""
        total_s = sum(self._seconds.values())
        if total_s > _LONG_S:
            terminalreporter.section(f"processor time: {total_s:.0f} s")
            for name, spent_s in self.most():
                terminalreporter.write_line(f"{spent_s:6.1f} s  {name}")
