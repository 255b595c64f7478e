"""Brute force against rows that were counted by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from rocketray_demo.expected import count_expected, count_flight_key, count_tail_number
from rocketray_demo.predicates import is_red_eye
from rocketray_demo.tally import Delays

ROWS = [
    # carrier flight day tailnum origin dest dep_time dep_delay arr_delay
    ("UA", 1, 1, "N1", "JFK", "ATL", 2200, 61, 5),
    ("UA", 1, 1, "N1", "EWR", "ATL", 459, 100, -2),
    ("DL", 1, 1, None, "JFK", "SFO", None, None, None),
    ("AA", 2, 1, "N2", "JFK", "ATL", 500, 60, 0),
    ("AA", 2, 2, "N1", "JFK", "ATL", 2159, 61, 70),
]
COLUMNS = [
    "carrier",
    "flight",
    "day",
    "tailnum",
    "origin",
    "dest",
    "dep_time",
    "dep_delay",
    "arr_delay",
]


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame(ROWS, columns=COLUMNS).assign(year=2013, month=1)


def test_counts(frame: pd.DataFrame) -> None:
    expected = count_expected(frame)
    assert (expected.rows, expected.destinations) == (5, 3)
    assert (expected.late_from_jfk, expected.red_eyes) == (2, 2)
    assert expected.delays == {"ATL": Delays(2, 2, 3), "SFO": Delays(1, 0, 0)}
    assert expected.delays["ATL"].mean_minutes == 1.5
    assert expected.delays["SFO"].mean_minutes is None


def test_keys(frame: pd.DataFrame) -> None:
    assert count_tail_number(frame, "N1") == 3
    assert [count_flight_key(frame, row) for row in range(5)] == [2, 2, 1, 1, 1]


@pytest.mark.parametrize(
    ("departure", "is_late"), [("2200", True), ("459", True), ("500", False), ("null", False)]
)
def test_the_predicate_looks_into_the_body(departure: str, *, is_late: bool) -> None:
    class Message:
        body = b'{"dep_time":%s}' % departure.encode()

    assert is_red_eye(Message()) is is_late
