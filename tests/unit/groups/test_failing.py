"""What is told of a message that fails again and again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketray.base.property_string import decode_properties, encode_properties
from rocketray.groups.failing import REASON_MAX_CHARS, FailingMessage, reason_of


def test_a_held_message_says_where_and_how_often_and_why() -> None:
    limited = FailingMessage(172, 7, 17, "ValueError: no")
    assert str(limited) == "held at offset 172: attempt 7 of 17, ValueError: no"
    assert str(replace(limited, last_attempt=None)) == (
        "held at offset 172: attempt 7, ValueError: no"
    )


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("on purpose")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no number"), "ValueError: no number"),
        (KeyError("a"), "KeyError: 'a'"),
        (ValueError(), "ValueError"),
        (UnprintableError(), "UnprintableError"),
        (ValueError("two\n  lines\tand \x01\x02 more\x00"), "ValueError: two lines and more"),
        (ValueError("half a \ud800 pair"), "ValueError: half a pair"),
    ],
)
def test_a_reason_is_one_line_that_a_property_can_hold(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
    held = encode_properties({"REASON": reason_of(error)}).encode()
    assert decode_properties(held) == {"REASON": reason}


def test_a_reason_has_a_bounded_length() -> None:
    assert len(reason_of(ValueError("x" * 10_000))) == REASON_MAX_CHARS
