from __future__ import annotations

import json

import pytest

from rocketray_demo.data import PROPERTIES, load_flights, message_table
from rocketray_demo.produce import prepare


def test_a_row_becomes_a_message() -> None:
    [message] = message_table(load_flights(1)).to_pylist()
    row = json.loads(message.pop("body"))
    assert row["dep_delay"] == 2
    assert row["time_hour"] == "2013-01-01T10:00:00Z"
    assert len(row) == 19
    assert message == {
        "tags": "UA",
        "keys": ["N14228", "UA-1545-2013-01-01"],
        "origin": "EWR",
        "dest": "IAH",
        "dep_delay": "2",
        "arr_delay": "11",
        "distance": "1400",
        "month": "1",
    }


def test_what_is_missing_is_null_in_the_body_and_absent_elsewhere() -> None:
    frame = load_flights(2000)
    cancelled = message_table(frame[frame["dep_delay"].isna()]).to_pylist()
    assert len(cancelled) > 5
    for message in cancelled:
        assert json.loads(message["body"])["dep_delay"] is None
        assert message["dep_delay"] is None
        assert message["arr_delay"] is None
    nameless = message_table(frame[frame["tailnum"].isna()]).to_pylist()
    assert {len(message["keys"]) for message in nameless} == {1}


def test_delays_are_whole_numbers_so_that_sql92_can_compare_them() -> None:
    table = message_table(load_flights(500))
    for name in ("dep_delay", "arr_delay", "distance", "month"):
        texts = [text for text in table[name].to_pylist() if text is not None]
        assert all(text.removeprefix("-").isdecimal() for text in texts)


@pytest.mark.timeout(120)
def test_all_rows_are_there_and_no_two_are_equal() -> None:
    tables = prepare(load_flights())
    bodies = [body for table in tables for body in table["body"].to_pylist()]
    assert len(bodies) == len(set(bodies)) == 336_776
    assert set(PROPERTIES) < set(tables[0].column_names)
