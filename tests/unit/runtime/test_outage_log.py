"""What fails again and again is a warning once, until it worked."""

from __future__ import annotations

import logging

import pytest

from rocketray.runtime.outage_log import OutageLog


def test_an_outage_is_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("outage")
    outages = OutageLog(log)
    with caplog.at_level(logging.DEBUG, "outage"):
        for number in range(3):
            outages.failed("coordinator", "no answer: %d", number)
        outages.failed("gateway", "no fetch")
        outages.works("coordinator")
        outages.failed("coordinator", "no answer: %d", 3)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "no answer: 0"),
        ("DEBUG", "no answer: 1"),
        ("DEBUG", "no answer: 2"),
        ("WARNING", "no fetch"),
        ("WARNING", "no answer: 3"),
    ]
