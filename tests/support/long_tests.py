"""A test of over 30 seconds says why: ``@pytest.mark.long(reason="…")``; without it, the run fails.

The time of a test is that of its set-up, its call and its teardown, so the first test of a module
that shares a node pays for the node's start. Tests marked ``slow`` need no reason: ``make test``
leaves them out.

A machine with other work must not fail a run. So a second counts for less where processes wait for
a processor: it is divided by the load average per processor where that is above one. Tests that
run at the same time count as load, too, so the limit is lenient rather than strict.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["LIMIT_S", "LongTests"]

LIMIT_S = 30.0
_EXEMPT = {"long", "slow"}


def _load_per_processor() -> float:
    return os.getloadavg()[0] / (os.cpu_count() or 1)


class LongTests:
    """A pytest plugin that adds up the time of each test, and judges it at the end of the run."""

    def __init__(self, load: Callable[[], float] = _load_per_processor) -> None:
        self._load = load
        self._seconds = defaultdict[str, float](float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if _EXEMPT.isdisjoint(report.keywords):
            self._seconds[report.nodeid] += report.duration / max(1.0, self._load())

    def too_long(self) -> dict[str, float]:
        """Return the tests over the limit without a reason, with their seconds, longest first."""
        found = {name: spent for name, spent in self._seconds.items() if spent > LIMIT_S}
        return dict(sorted(found.items(), key=lambda each: -each[1]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self.too_long():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for name, spent in self.too_long().items():
            terminalreporter.write_line(
                f"TOO LONG {name}: {spent:.0f} s on a machine without other work; make it shorter, "
                'or say why it is long: @pytest.mark.long(reason="…")',
                red=True,
            )
