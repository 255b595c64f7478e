"""Reading several files in the order of their times, their ends, and what follows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketray.runtime.process_logs import log_tails
from rocketray.runtime.process_logs.log_index import LogEntry
from rocketray.runtime.process_logs.log_line import LogLine
from rocketray.runtime.process_logs.log_output import old_name
from rocketray.runtime.process_logs.log_tails import LogTail, merged

HEAD = "2025-11-27 10:00:0"
START_MS = LogLine.parse(f"{HEAD}1,000 INFO a: b").time_ms or 0
ENDED = 2**31 - 1
"""A pid that no process has."""


def line(second: int, text: str) -> str:
    return f"{HEAD}{second},000 INFO a: {text}"


OPENED: list[LogTail] = []


@pytest.fixture(autouse=True)
def closed_tails() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def tail(path: Path, *lines: str, end: str = "\n", pid: int = 0) -> LogTail:
    path.write_text("\n".join(lines) + end)
    entry = LogEntry(path.stem, "vm", pid or os.getpid(), START_MS, (str(path),))
    OPENED.append(LogTail(entry, path))
    return OPENED[-1]


def texts(found: list[log_tails.PartLine]) -> list[str]:
    return [each.line.text for each in found]


def test_lines_of_all_files_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    one = tail(tmp_path / "one", "early", line(2, "a"), "trace", line(5, "d"))
    two = tail(tmp_path / "two", line(3, "b"), line(4, "c"))
    assert texts([*merged([one, two])]) == ["early", "a\ntrace", "b", "c", "d"]
    again = [tail(each.path, *each.path.read_text().splitlines()) for each in (one, two)]
    assert texts([*merged(again, START_MS + 3000)]) == ["c", "d"]


def test_lines_since_a_time_come_from_replaced_files_too(tmp_path: Path) -> None:
    path = tmp_path / "log"
    old_name(path, 2).write_text(line(1, "a") + "\n" + line(2, "b") + "\n")
    old_name(path, 1).write_text(line(3, "c") + "\n")
    last = tail(path, line(4, "d"))
    assert texts([*merged([last], START_MS + 1000)]) == ["b", "c", "d"]
    short = tail(path, line(4, "d"))
    assert texts([*merged([short])]) == ["d"]
    assert short.was_cut


def test_of_a_long_file_the_end_is_read_and_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tails, "TAIL_BYTES", 70)
    long = tail(tmp_path / "log", *(line(number, f"line {number}") for number in range(1, 8)))
    assert texts([*merged([long])]) == ["line 7"]
    assert long.was_cut


def test_a_half_line_is_shown_when_its_process_has_ended(tmp_path: Path) -> None:
    assert texts([*merged([tail(tmp_path / "a", line(1, "whole"), "half", end="")])]) == ["whole"]
    ended = tail(tmp_path / "b", line(1, "whole"), "half", end="", pid=ENDED)
    assert texts([*merged([ended])]) == ["whole\nhalf"]


def test_a_file_that_is_gone_is_missing(tmp_path: Path) -> None:
    gone = tail(tmp_path / "log")
    gone.path.unlink()
    assert list(merged([gone])) == []
    assert gone.is_missing


def test_following_reads_what_is_appended_also_where_the_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log"
    one = tail(path, line(1, "a"))
    assert texts([*merged([one])]) == ["a"]
    assert one.new() == []
    with path.open("a") as file:
        file.write(line(2, "b")[:10])
        file.flush()
        assert one.new() == []
        file.write(line(2, "b")[10:] + "\n")
        file.flush()
        assert texts(one.new()) == ["b"]
        file.write(line(3, "c") + "\n")
    path.replace(old_name(path, 1))
    path.write_text(line(4, "d") + "\n")
    assert texts(one.new()) == ["c", "d"]
