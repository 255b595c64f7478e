"""What commands print: JSON for programs, tables for users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from rocketray.base.json_fields import json_fields
from rocketray.cli.terminal.output import TextTable, as_time, emit, print_table, table_of
from rocketray.filters.counters import FilterCounters


def test_json_names_every_field_of_a_value() -> None:
    printed = json_fields(FilterCounters(9, tag_rejected=4, predicate_timeouts=1))
    assert (printed["tagRejected"], printed["predicateTimeouts"]) == (4, 1)
    assert sum(printed.values()) == 14


def test_columns_without_text_are_aligned_as_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "count", "size"), [("a", 1, "1 MB"), (None, None, "20 MB")])
    assert capsys.readouterr().out.splitlines() == [
        "name  count  size",
        "────  ─────  ─────",
        "a         1  1 MB",
        "-         -  20 MB",
    ]


def test_records_are_lines_of_json_or_the_rows_of_a_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    records = [{"queueId": 0, "topic": "Trade", "more": [1]}]
    columns, keys = ("topic", "queue"), {"queue": "queueId"}
    emit(records, table_of(records, columns, keys), as_json=True)
    assert json.loads(capsys.readouterr().out) == records[0]
    emit(records, table_of(records, columns, keys), as_json=False)
    assert capsys.readouterr().out.split()[-2:] == ["Trade", "0"]


def test_only_the_form_that_is_wanted_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> Iterator[Any]:
        yield 1 / 0

    emit({"a": 1}, fails(), as_json=True)
    emit(fails(), "one line", as_json=False)
    emit(fails(), ("first", TextTable(("a",), [(1,)])), as_json=False)
    assert capsys.readouterr().out.splitlines() == ['{"a": 1}', "one line", "first", "a", "─", "1"]


def test_a_time_is_local_and_one_of_no_calendar_is_its_number() -> None:
    now = datetime(2026, 11, 23, 18, 30, 15, 250_000).astimezone()
    now_ms = round(now.timestamp() * 1000)
    assert as_time(now_ms) == "2026-11-23 18:30:15"
    assert as_time(now_ms, exact=True) == "2026-11-23 18:30:15.250"
    assert as_time(None) is None
    for time_ms in (2**63 - 1, -(2**63), 253_402_300_800_000):
        assert as_time(time_ms) == as_time(time_ms, exact=True) == f"{time_ms} ms"
