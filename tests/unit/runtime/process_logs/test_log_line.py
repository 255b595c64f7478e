"""Lines of a log: what is written is read again, and foreign lines belong to the one above."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketray.runtime.process_logs.log_line import (
    LogLine,
    MessagePlace,
    formatter,
    parse_lines,
    place_extra,
)

PLACES = [
    None,
    MessagePlace("Orders", 0, 17),
    MessagePlace("%RETRY%shop-charge", 3, 17, 26),
    MessagePlace("Orders", 1, 2**63 - 1, None, "7F0000010ABC"),
]


def written(place: MessagePlace | None, text: str, name: str = "shop.agents") -> str:
    record = logging.LogRecord(name, logging.ERROR, "", 0, text, None, None)
    vars(record).update(place_extra(place))
    record.created, record.msecs = 1_790_000_000.25, 250.0
    return formatter().format(record)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", ["charged", "", "a [b queue 1 offset 2]: c", "ends: with: colons"])
def test_a_line_is_read_as_it_was_written(place: MessagePlace | None, text: str) -> None:
    line = written(place, text)
    assert LogLine.parse(line) == LogLine(
        line, 1_790_000_000_250, "ERROR", "shop.agents", place, text
    )


@given(st.text(alphabet=st.characters(exclude_characters="\n\r")))
def test_any_text_is_a_line(text: str) -> None:
    for line in (text, written(None, text), written(PLACES[2], text)):
        found = LogLine.parse(line)
        assert found.written == line
        assert found.text in (line, text)


@pytest.mark.parametrize("line", ["9999-99-99 10:00:00,123 INFO a: b", "2026-11-27 INFO a: b", ""])
def test_what_has_no_time_is_text(line: str) -> None:
    assert LogLine.parse(line) == LogLine(line, text=line)


def test_a_traceback_belongs_to_the_line_above_it_and_marks_of_ray_to_none() -> None:
    trace = ["Traceback (most recent call last):", "", "ValueError: negative"]
    lines = [":actor_name:ConsumerHost", "from C++", written(None, "a"), *trace, written(None, "b")]
    first, failed, last = parse_lines(lines)
    assert (first.text, first.time_ms) == ("from C++", None)
    assert failed.text.split("\n") == ["a", *trace]
    assert failed.written.split("\n") == [lines[2], *trace]
    assert last.text == "b"
