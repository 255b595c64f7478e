from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rocketray.queries.spark.sink_progress import Position, ProgressLog, checkpoint_position
from rocketray.topology.app.sink_statistics import SinkState, SinkStatistics

AT = {number: {"T": {"0": 10 * number}, "@": {}} for number in range(4)}


def checkpoint(directory: Path, *, begun: int, completed: int, text: str = "") -> str:
    for name, count in (("offsets", begun), ("commits", completed)):
        (directory / name).mkdir(parents=True)
        for number in range(count):
            offset = json.dumps(AT[number])
            (directory / name / str(number)).write_text(text or f"v1\n{{}}\n{offset}")
            (directory / name / f".{number}.crc").write_bytes(b"a sum of Hadoop")
    return str(directory)


@pytest.mark.parametrize(
    ("begun", "completed", "position"),
    [(0, 0, {}), (1, 0, {}), (1, 1, AT[0]), (3, 2, AT[1]), (3, 3, AT[2])],
)
def test_a_query_continues_behind_the_last_batch_that_was_completed(
    tmp_path: Path, begun: int, completed: int, position: Position
) -> None:
    assert checkpoint_position(checkpoint(tmp_path, begun=begun, completed=completed)) == position


def test_a_position_that_cannot_be_read_is_unknown_and_none_is_the_beginning(
    tmp_path: Path,
) -> None:
    assert checkpoint_position(str(tmp_path / "none")) == {}
    assert checkpoint_position("s3://bucket/checkpoint") is None
    for number, text in enumerate(("v1\n{}", "v1\n{}\n[1]", "v1\n{}\n{", "v1\n{}\n-\n-")):
        broken = checkpoint(tmp_path / str(number), begun=1, completed=1, text=text)
        assert checkpoint_position(broken) is None


RUNNING = SinkStatistics("lake", "Trade", SinkState.RUNNING, 0, lag=120_000)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = list(caplog.messages)
    caplog.clear()
    return lines


@pytest.mark.proves("spark", "Progress in the log")
def test_a_sink_says_how_far_behind_it_is_then_every_ten_seconds_and_when_it_has_caught_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    now_s = 100.0
    log = ProgressLog(lambda: now_s)
    log.note([replace(RUNNING, state=SinkState.WAITING)])
    assert said(caplog) == []
    log.note([RUNNING])
    assert said(caplog) == ["sink lake reads Trade: first batch, 120,000 messages behind"]
    working = replace(RUNNING, batch_id=0, batch_rows=1000, rows_per_s=2500.4, lag=119_000)
    log.note([working])
    assert said(caplog) == []
    now_s += 10
    log.note([working])
    assert said(caplog) == [
        "sink lake has written batch 0 with 1,000 rows at 2,500 rows/s, 119,000 messages behind"
    ]
    now_s += 60
    log.note([working])
    assert said(caplog) == [], "an idle sink has no lines"
    now_s -= 59
    log.note([replace(working, batch_id=9, lag=0)])
    assert said(caplog) == [
        "sink lake has written batch 9 with 1,000 rows at 2,500 rows/s, up to date"
    ]
    log.note([replace(working, batch_id=10, lag=0)])
    assert said(caplog) == []


@pytest.mark.proves("spark", "Progress in the log")
def test_a_sink_that_waits_for_spark_says_so_every_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    now_s = 100.0
    log = ProgressLog(lambda: now_s)
    for after_s in range(1, 26):
        log.note([replace(RUNNING, state=SinkState.STARTING)])
        now_s = 100.0 + after_s
    assert said(caplog) == ["sink lake still starts on Spark"] * 2
    log.note([RUNNING])
    assert said(caplog) == ["sink lake reads Trade: first batch, 120,000 messages behind"]


def test_a_sink_that_failed_or_ended_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = ProgressLog()
    log.note([replace(RUNNING, lag=None)])
    log.note([replace(RUNNING, state=SinkState.RESTARTING)])
    log.note([replace(RUNNING, batch_id=3, lag=0)])
    ended = replace(RUNNING, state=SinkState.FINISHED, batch_id=4, batch_rows=2)
    log.note([ended])
    log.note([ended])
    assert said(caplog) == [
        "sink lake reads Trade: first batch, from its starting offsets",
        "sink lake reads Trade: behind batch 3, up to date",
        "sink lake has read all; its last was batch 4 with 2 rows",
    ]
