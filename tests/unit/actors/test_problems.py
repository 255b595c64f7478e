"""What is wrong with a node is kept by subject, told in lines, and logged once."""

from __future__ import annotations

import logging

import pytest

from rocketray.actors.problems import Problems


def test_a_subject_has_one_line_until_it_is_resolved(caplog: pytest.LogCaptureFixture) -> None:
    problems = Problems()
    assert problems.lines() == []
    with caplog.at_level(logging.WARNING):
        problems.note("topics.json", "topics.json: damaged")
        problems.note("shard:Trade-0", "Trade 0: closed")
        problems.note("topics.json", "topics.json: damaged; its copy is used")
        problems.note("topics.json", "topics.json: damaged; its copy is used")
    assert problems.lines() == ["Trade 0: closed", "topics.json: damaged; its copy is used"]
    assert len(caplog.records) == 3
    problems.resolve("topics.json")
    problems.resolve("nothing")
    assert problems.lines() == ["Trade 0: closed"]
