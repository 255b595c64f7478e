"""``rocketray tail``: its options, and the lines at its end."""

from __future__ import annotations

import pytest
import typer

from rocketray.broker.filtering.tail import TailCounts, TailStart
from rocketray.cli.filters.tail_command import Notices, parse_start, summary
from rocketray.filters.counters import FilterCounters
from rocketray.messaging.remote.disks_tail import UnreadQueues


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("latest", TailStart("latest")),
        ("earliest", TailStart("earliest")),
        ("0", TailStart("offset", 0)),
        ("99999999999", TailStart("offset", 99_999_999_999)),
        ("1764201600000", TailStart("time", 1_764_201_600_000)),
        ("2025-11-27T00:00:00Z", TailStart("time", 1_764_201_600_000)),
    ],
)
def test_a_start_is_an_end_an_offset_or_a_time(text: str, start: TailStart) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "1.5", "٣"])
def test_another_start_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not latest, earliest, an offset or a time"):
        parse_start(text)


def test_the_summary_names_each_stage_and_all_that_was_left_out() -> None:
    counters = FilterCounters(
        9000, tag_rejected=5000, collisions=1, sql_rejected=7, evaluation_errors=2, delivered=3990
    )
    assert summary(TailCounts(counters, 0, 0, "")) == [
        (
            "scanned 9,000, 5,000 rejected by tag, 1 rejected by the tag's text, 7 rejected by SQL, the "
            "filter failed on 2, matched 3,990"
        )
    ]
    lines = summary(TailCounts(FilterCounters(1, delivered=1, missed=2), 70_000, 0, "boom"))
    assert lines == [
        "scanned 1, matched 1",
        "the first failure: boom",
        "70,000 messages not read, because the reader was slower than the producers",
        "missed 2 messages, deleted before the tail read them",
    ]


def test_queues_from_which_nothing_comes_are_named_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    away = UnreadQueues("far", "disk far, /srv on m2", (1, 3), "not read, because it burns")
    notices = Notices("waiting")
    said = []
    for now_s, is_away in (
        (0, True),
        (0.5, True),
        (1.1, True),
        (9, True),
        (10, False),
        (20, False),
    ):
        unread = [away] if is_away else []
        notices.tell(unread, now_s, is_late=False)
        said.append(capsys.readouterr().err)
    assert said == [
        "",
        "",
        "warning: queues 1, 3 on disk far, /srv on m2: not read, because it burns\n",
        "",
        "queues 1, 3 on disk far, /srv on m2: read again\n",
        "",
    ]
