"""A time in another unit is refused at the send, with the unit that it looks like."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest

from rocketray.base.message_time import TIME_MAX_MS, TIME_MIN_MS, checked_ms
from rocketray.errors import InvalidMessageError
from rocketray.message import Message
from rocketray.topology.app.app import App
from rocketray.topology.values.wire import message_of

NOW_S = 1_790_000_000


@pytest.mark.parametrize("time_ms", [TIME_MIN_MS, -1, 0, NOW_S * 1000, TIME_MAX_MS])
def test_times_of_the_calendar_are_taken(time_ms: int) -> None:
    assert checked_ms("it", time_ms, "milliseconds") == time_ms
    assert Message("T", b"", born_timestamp_ms=time_ms).born_timestamp_ms == time_ms


@pytest.mark.parametrize(
    ("given", "unit", "text"),
    [
        (NOW_S * 10**6, "milliseconds", "looks like microseconds; give milliseconds since 1970"),
        (NOW_S * 10**9, "milliseconds", "looks like nanoseconds; give milliseconds"),
        (NOW_S * 10**3, "seconds", "looks like milliseconds; give seconds since 1970"),
        (NOW_S * 10.0**6, "seconds", "looks like microseconds"),
        (NOW_S * 10**9, "seconds", "looks like nanoseconds"),
        (2**63 - 1, "milliseconds", "outside the years 1 to 9999"),
        (-(2**63), "milliseconds", "outside the years 1 to 9999"),
        (10**30, "milliseconds", "outside the years 1 to 9999; give milliseconds"),
        (math.nan, "seconds", "it is nan; give seconds since 1970"),
        (math.inf, "seconds", "it is inf; give seconds"),
        (None, "seconds", "it is None; give seconds"),
    ],
)
def test_other_times_are_refused(
    given: Any, unit: Literal["seconds", "milliseconds"], text: str
) -> None:
    with pytest.raises(InvalidMessageError, match=text):
        checked_ms("it", given, unit)


def test_each_door_refuses_them() -> None:
    with pytest.raises(InvalidMessageError, match=r"born_timestamp_ms is .*looks like nanosec"):
        Message("T", b"", born_timestamp_ms=NOW_S * 10**9)
    with pytest.raises(InvalidMessageError, match=r"topic T: timestamp is .*looks like millisec"):
        App("app").topic("T").message(b"", None, timestamp=NOW_S * 1000.0)
    with pytest.raises(InvalidMessageError, match="timestamp is nan"):
        message_of("T", None, b"", None, math.nan)
