"""A time in another unit is refused at the send, with the unit that it looks like."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa
import pytest

from rocketray.base.delay import Delay
from rocketray.base.message_time import TIME_MAX_MS, TIME_MIN_MS, checked_ms
from rocketray.errors import ConfigError, InvalidMessageError
from rocketray.filters.subscription import Subscription
from rocketray.groups.member_options import check_member
from rocketray.message import Message
from rocketray.queries.ranges.time_rules import parse_time, parse_times
from rocketray.services.staging.message_rows import MessageRows
from rocketray.topology.app.app import App
from rocketray.topology.values.wire import message_of
from rocketray.views.lookups import bound_of, time_ms_of
from rocketray.views.outgoing import from_json

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


def start_of_a_member(time_ms: int) -> object:
    check_member("g", "T", Subscription.tags("*"), {"start": time_ms})
    return time_ms


def row_to_deliver_at(time_ms: int) -> object:
    """What the Spark writer gets of a number that was cast to a timestamp as milliseconds."""
    times = pa.array([None, time_ms], pa.timestamp("ms", "UTC"))
    rows = MessageRows(lambda _: 1, "T", clock_ms=lambda: NOW_S * 1000)
    batch = pa.record_batch({"body": [b"", b""], "deliverAt": times})
    return [*rows.frames(batch)]


NODE_TIMES: dict[str, Callable[[int], object]] = {
    "deliver_at": lambda time_ms: Delay.of(deliver_at=time_ms),
    "deliverAt of a line": lambda time_ms: from_json("T", {"text": "", "deliverAt": time_ms}),
    "deliverAt of a row": row_to_deliver_at,
    "start": start_of_a_member,
    "a time of a command or a form": lambda time_ms: time_ms_of(str(time_ms)),
    "a bound": lambda time_ms: bound_of(f"{time_ms:012}"),
    "startingTimestamp": lambda time_ms: parse_time(str(time_ms), "startingTimestamp"),
    "startingOffsetsByTimestamp": lambda time_ms: parse_times(
        f'{{"T": {{"0": {time_ms}}}}}', "startingOffsetsByTimestamp"
    ),
}


@pytest.mark.proves(
    "producers",
    "A time that is given in another unit is refused by every door, with the unit to give",
)
@pytest.mark.parametrize("door", NODE_TIMES.values(), ids=NODE_TIMES)
def test_a_time_of_a_node_is_in_milliseconds(door: Callable[[int], object]) -> None:
    for time_ms in (0, 17, 70_000, NOW_S * 1000):
        door(time_ms)
    with pytest.raises(ConfigError, match=r"looks like .*seconds; (give milli|make the timestamp)"):
        door(NOW_S)
    if door is not row_to_deliver_at:  # Spark has no such timestamp to give
        with pytest.raises(ConfigError, match="looks like microseconds; give milliseconds since"):
            door(NOW_S * 10**6)


def test_a_delivery_at_another_kind_of_number_says_what_to_give() -> None:
    wrong: Any
    for wrong in (NOW_S + 0.5, True, "now"):
        with pytest.raises(ConfigError, match=r"deliver_at is .*; give a datetime with its zone"):
            Delay.of(deliver_at=wrong)
