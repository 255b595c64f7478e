from __future__ import annotations

import io

import pytest

from rocketray.cli.terminal.lines import LINE_MAX_BYTES, parse_object, read_lines
from rocketray.errors import StreamError


def test_blank_lines_count_and_are_passed_over() -> None:
    assert list(read_lines(io.BytesIO(b"{}\n\n  \n[]"))) == [(1, b"{}\n"), (4, b"[]")]


def test_a_line_over_the_limit_ends_the_reading() -> None:
    lines = read_lines(io.BytesIO(b"{}\n" + b" " * (LINE_MAX_BYTES + 1)))
    assert next(lines) == (1, b"{}\n")
    with pytest.raises(StreamError, match="line 2 of the input is longer"):
        next(lines)


def test_lone_surrogates_are_read_as_they_are() -> None:
    assert parse_object(b'{"a": "\\ud800"}') == {"a": "\ud800"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"nonsense", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "not a JSON object, but a list"),
        (b"null", "not a JSON object, but a NoneType"),
    ],
)
def test_what_is_no_object_says_so(line: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_object(line)
