"""A value has one text, however it is sent."""

from __future__ import annotations

import enum
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pytest

from rocketray.base.property_text import property_text, text_to_give
from rocketray.errors import InvalidMessageError
from rocketray.filters.sql92.compiled import compile_expression


class Kind(enum.Enum):
    PAY = "pay"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("eu", "eu"),
        ("", None),
        (None, None),
        (0, "0"),
        (2**80, "1208925819614629174706176"),
        (1.5, "1.5"),
        (True, "true"),
        (False, "false"),
        (Decimal("1.10"), "1.10"),
        (Kind.PAY, "pay"),
        (b"caf\xc3\xa9", "café"),
        (date(2013, 1, 2), "2013-01-02"),
        (datetime(2013, 1, 2, 3, 4, tzinfo=UTC), "2013-01-02T03:04:00+00:00"),
        (time(3, 4, 5), "03:04:05"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (Decimal("sNaN"), "NaN"),
        (Decimal("-Infinity"), "-Infinity"),
    ],
)
def test_property_text(value: object, text: str | None) -> None:
    assert property_text("x", value) == text


@pytest.mark.parametrize("value", [b"\xff", [1], {"a": 1}, object()])
def test_what_has_no_text_is_refused(value: object) -> None:
    with pytest.raises(InvalidMessageError, match=r"^property 'h' is"):
        property_text("property 'h'", value)


@pytest.mark.parametrize(
    ("value", "matches"), [(math.inf, True), (-math.inf, False), (math.nan, True), (7.5, True)]
)
def test_filters_read_the_text_of_every_float(value: float, matches: bool) -> None:
    text = property_text("temp", value)
    assert text is not None
    assert compile_expression("temp > 5.0").matches({"temp": text}) is matches  # NaN is the highest


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (True, "give 'true'"),
        (5, "give '5'"),
        (None, "leave it out"),
        ("", "leave it out"),
        (datetime(2013, 1, 2, tzinfo=UTC), "give '2013-01-02T00:00:00+00:00'"),
        ([1], "give a string"),
    ],
)
def test_hints_give_the_form_that_apps_write(value: object, hint: str) -> None:
    assert text_to_give(value) == hint
