"""A time that others write in JSON is that time in a Record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import faust
import pytest

import rocketray as rr
from rocketray.topology.values.iso_times import parse

DAY = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001  # the text has no zone
TIMES = {
    "2026-01-02T03:04:05.123Z": DAY.replace(microsecond=123_000, tzinfo=UTC),  # JavaScript, Java
    "2026-01-02T03:04:05.5": DAY.replace(microsecond=500_000),
    "2026-01-02T03:04:05.123456789Z": DAY.replace(microsecond=123_456, tzinfo=UTC),  # Java, Go
    "2026-01-02T03:04:05.000123+02:00": DAY.replace(
        microsecond=123, tzinfo=timezone(timedelta(hours=2))
    ),
    "2026-01-02T03:04:05+00:19:32": DAY.replace(tzinfo=timezone(timedelta(minutes=19, seconds=32))),
    "2026-01-02 03:04:05": DAY,
    "2026-01-02": DAY.replace(hour=0, minute=0, second=0),
    "2026-1-2T03:04:05": DAY,  # as Faust reads it
}


class Ours(rr.Record, coerce=True):
    at: datetime
    several: list[datetime]
    by_time: dict[datetime, int]


class Faust(faust.Record, coerce=True):  # type: ignore[misc, call-arg]  # Faust's types are not followed
    at: datetime
    several: list[datetime]


@pytest.mark.proves("producers", "JSON of others is read as the standard library reads it")
@pytest.mark.parametrize(("text", "at"), TIMES.items())
def test_a_time_of_others_is_that_time(text: str, at: datetime) -> None:
    data = {"at": text, "several": [text], "by_time": {text: 1}}
    assert Ours.from_data(data) == Ours(at=at, several=[at], by_time={at: 1})
    assert Faust.from_data(data).at == at
    assert Faust.from_data(data).several == [at]
    assert parse(text).utcoffset() == at.utcoffset()


@pytest.mark.parametrize(
    "text", ["", "2026", "soon", "2026-01-02T03:04:05.5 and more", "2026-1-2T03:04:05.5"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid isoformat string"):
        parse(text)
