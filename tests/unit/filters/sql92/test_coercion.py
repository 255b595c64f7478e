from __future__ import annotations

import itertools
import math

import pytest

from rocketray.errors import FilterEvaluationError
from rocketray.filters.sql92.coercion import (
    comparator,
    compare_doubles,
    to_boolean,
    to_double,
    to_int32,
    to_int64,
)
from rocketray.filters.sql92.nodes import Kind

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("05", 5),
        ("+5", 5),
        ("-5", -5),
        ("-0", 0),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("+0000000002147483647", 2**31 - 1),
        ("0" * 5000 + "7", 7),
        ("\uff15", 5),
        ("-\u0663\u0664", -34),
        ("\u0660" * 20 + "9", 9),
    ],
)
def test_integers_are_read_as_integer_value_of(text: str, value: int) -> None:
    assert to_int32(text) == value
    assert to_int64(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "-",
        "+-5",
        " 5",
        "5 ",
        "5.0",
        "1e3",
        "0x10",
        "5L",
        "1_000",
        "abc",
        "²",
        "𝟓",
        "5\n",
        "2147483648",
        "-2147483649",
        "99999999999",
        "9" * 5000,
        "�",
    ],
)
def test_what_is_no_32_bit_integer_is_an_error(text: str) -> None:
    with pytest.raises(FilterEvaluationError, match="32-bit integer"):
        to_int32(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "9" * 5000, "5.5"])
def test_what_is_no_64_bit_integer_is_an_error(text: str) -> None:
    with pytest.raises(FilterEvaluationError, match="64-bit integer"):
        to_int64(text)


def test_64_bits_are_used_whole() -> None:
    assert to_int64("9223372036854775807") == 2**63 - 1
    assert to_int64("-9223372036854775808") == -(2**63)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        (" 5\t", 5.0),
        ("\x00 5 \x1f", 5.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("5d", 5.0),
        ("5.5F", 5.5),
        ("1e3D", 1000.0),
        ("1E+3", 1000.0),
        ("007", 7.0),
        ("0x1.8p1", 3.0),
        ("-0X.8P0f", -0.5),
        ("0x1p99999999999", INF),
        ("-0x1p99999999999", -INF),
        ("0x1p-99999999999", 0.0),
        ("0x0p99999999999999999999", 0.0),
        ("1e400", INF),
        ("1e-400", 0.0),
        ("1e99999999999", INF),
        ("Infinity", INF),
        ("-Infinity", -INF),
    ],
)
def test_doubles_are_read_as_double_value_of(text: str, value: float) -> None:
    assert to_double(text) == value


def test_nan_is_a_double_with_any_sign() -> None:
    assert all(math.isnan(to_double(text)) for text in ("NaN", "-NaN", " +NaN "))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "e5",
        "1e",
        "5L",
        "0x10",
        "0xp1",
        "0x.p1",
        "nan",
        "inf",
        "infinity",
        "1_000",
        "NaNd",
        "Infinityf",
        "\xa05",
        "５",
        "5 d",
        "+-5",
        "1,5",
        "�",
        "--5",
        "5dd",
    ],
)
def test_what_is_no_double_is_an_error(text: str) -> None:
    with pytest.raises(FilterEvaluationError, match="is not a number"):
        to_double(text)


def test_only_true_is_true() -> None:
    assert all(map(to_boolean, ("true", "TRUE", "tRuE")))
    assert not any(map(to_boolean, ("yes", "1", " true", "", "\u0442rue")))


def test_doubles_are_ordered_as_java_orders_them() -> None:
    ascending = [-INF, -1.0, -0.0, 0.0, 5e-324, 1.0, INF, NAN]
    for (i, left), (j, right) in itertools.product(enumerate(ascending), repeat=2):
        assert compare_doubles(left, right) == (i > j) - (i < j), (left, right)


@pytest.mark.parametrize(
    ("left", "left_value", "right", "right_value", "order"),
    [
        (Kind.STRING, "05", Kind.INT32, 5, 0),
        (Kind.INT32, 5, Kind.STRING, "+6", -1),
        (Kind.STRING, "5.5", Kind.DOUBLE, 5.0, 1),
        (Kind.DOUBLE, 5.0, Kind.STRING, " 5 ", 0),
        (Kind.STRING, "10", Kind.STRING, "9", 1),
        (Kind.STRING, "TRUE", Kind.BOOLEAN, True, 0),
        (Kind.INT64, 2**53 + 1, Kind.DOUBLE, 2.0**53, 0),
        (Kind.INT32, 5, Kind.INT64, 2**40, -1),
        (Kind.BOOLEAN, True, Kind.INT32, 1, -1),
        (Kind.INT32, 1, Kind.BOOLEAN, True, -1),
        (Kind.BOOLEAN, True, Kind.BOOLEAN, False, 1),
    ],
)
def test_each_pair_of_kinds_has_its_conversion(
    left: Kind, left_value: object, right: Kind, right_value: object, order: int
) -> None:
    assert comparator(left, right)(left_value, right_value) == order


def test_a_truth_value_left_of_a_text_is_an_error() -> None:
    with pytest.raises(FilterEvaluationError, match="swap"):
        comparator(Kind.BOOLEAN, Kind.STRING)(True, "true")
