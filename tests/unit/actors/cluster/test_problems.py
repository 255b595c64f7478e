"""What is wrong with a node is kept by subject, told in lines, and logged once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rocketray.actors.cluster.cluster_state import Problems


def test_a_subject_has_one_line_until_it_is_resolved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    problems = Problems(tmp_path)
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


def test_a_repaired_file_is_a_problem_until_what_was_damaged_is_removed(tmp_path: Path) -> None:
    problems = Problems(tmp_path)
    problems.note("Ray", "Ray: open")
    damaged = [
        tmp_path / name
        for name in ("broadcast/c/g/T.json", "config/redriven/%DLQ%g.json", "directory.json")
    ]
    for path in damaged:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f"{path.name}.damaged").touch()
    *lines, last = problems.lines()
    assert [line.partition(": it was damaged")[0] for line in lines] == [*map(str, damaged)]
    assert last == "Ray: open"
    for path in damaged:
        path.with_name(f"{path.name}.damaged").unlink()
    assert problems.lines() == ["Ray: open"]
