"""RocketMQ's coercions and nulls by the place where each can go wrong; the golden rows hold the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from rocketray.errors import FilterEvaluationError
from rocketray.filters.sql92 import compile_expression

HALF = "\ud83d"  # the first half of 😀 in UTF-16


@pytest.mark.parametrize(
    ("sql", "properties", "result"),
    [
        ("a = 5", {"a": "05"}, True),
        ("a = 5", {}, None),
        ("5 = a", {}, False),
        ("5 <> a", {}, True),
        ("a = b", {}, True),
        ("a <> b", {}, False),
        ("a <> b", {"a": "1"}, True),
        ("a <> b", {"b": "1"}, None),
        ("a = b", {"a": "1", "b": "1.0"}, False),
        ("a < b", {"a": "-0.0", "b": "0.0"}, True),
        ("a > 1.0", {"a": "NaN"}, True),
        ("a = TRUE", {"a": "yes"}, False),
        ("a = FALSE", {"a": "yes"}, True),
        ("5 = TRUE", {}, False),
        ("a > 3000000000", {"a": "99999999999"}, True),
        ("a = -2147483648", {"a": "-2147483648"}, True),
        ("-a < 5", {"a": "6"}, None),
        ("-a = -b", {"a": "6"}, True),
        ("a", {"a": "true"}, False),
        ("NOT a", {"a": "true"}, True),
        ("NOT a", {}, None),
        ("a IS NULL", {}, True),
        ("(a > 5) IS NULL", {}, True),
        ("a NOT IN ('x')", {}, None),
        ("a NOT IN ('x')", {"a": "y"}, True),
        ("a NOT CONTAINS 'x'", {}, False),
        ("NOT (a CONTAINS 'x')", {}, True),
        ("a NOT CONTAINS ''", {"a": "abc"}, False),
        ("a CONTAINS 'b' CONTAINS 'c'", {"a": "abc"}, False),
        ("5 CONTAINS '5'", {}, False),
        ("a ENDSWITH 'c' = TRUE", {"a": "abc"}, True),
        ("FALSE AND NULL", {}, False),
        ("NULL AND FALSE", {}, False),
        ("NULL OR TRUE", {}, True),
        ("TRUE AND NULL", {}, None),
        ("NULL", {}, None),
        ("a = 5", None, None),
        ("b = 'x' OR a = 1", {"a": "bad", "b": "x"}, True),
        ("b = 'y' AND a = 1", {"a": "bad", "b": "x"}, False),
        ("a = '\ud800'", {"a": "\ud800"}, True),
        (f"a CONTAINS '{HALF}'", {"a": "x😀"}, True),
        (f"a STARTSWITH '{HALF}'", {"a": "😀x"}, True),
        (f"a ENDSWITH '{HALF}'", {"a": "😀"}, False),
        (f"a NOT CONTAINS '{HALF}'", {"a": "😎\ude00"}, False),
    ],
)
def test_result(sql: str, properties: dict[str, str] | None, result: object) -> None:
    compiled = compile_expression(sql)
    assert compiled.evaluate(properties) is result
    assert compiled.matches(properties) is (result is True)


@pytest.mark.parametrize(
    ("sql", "properties", "named"),
    [
        ("a = 5", {"a": "5.5"}, "a = 5: '5.5' is not a 32-bit integer"),
        ("a > 5", {"a": "99999999999"}, "does not fit"),
        ("a > 5.5", {"a": "x"}, "a > 5.5: 'x' is not a number"),
        ("a > b", {"a": "x", "b": "9"}, "'x' is not a number"),
        ("'x' = 1", {}, "'x' = 1: 'x'"),
        ("TRUE = a", {"a": "true"}, "swap"),
        ("a = 1 OR b = 'x'", {"a": "bad", "b": "x"}, "a = 1"),
        ("NULL AND a = 1", {"a": "bad"}, "a = 1"),
        ("-(a = 1) = b", {"a": "bad"}, "a = 1"),
        ("c = (a = 1)", {"a": "bad"}, "a = 1"),
        ("a = 1", {"a": "\ud800" * 500}, "…"),
    ],
)
def test_an_error_names_the_comparison(sql: str, properties: dict[str, str], named: str) -> None:
    compiled = compile_expression(sql)
    with pytest.raises(FilterEvaluationError) as caught:
        compiled.matches(properties)
    assert named in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_right_of_an_ordering_is_not_looked_at_when_the_left_is_absent() -> None:
    compiled = compile_expression("a > -(b = 1)")
    assert compiled.evaluate({"b": "bad"}) is None
    with pytest.raises(FilterEvaluationError):
        compiled.evaluate({"a": "1", "b": "bad"})


class Recording(Mapping[str, str]):
    """A mapping that notes what is looked up."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.seen.add(name)
        return "1"

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("an expression looks up names, it does not list them")

    def __len__(self) -> int:
        raise AssertionError("an expression looks up names, it does not count them")


def test_only_the_named_properties_are_looked_up() -> None:
    compiled = compile_expression("(a = 1 AND b IN ('1') AND c > d) = (-e IS NULL)")
    properties = Recording()
    assert compiled.evaluate(properties) is False
    assert properties.seen == compiled.property_names == set("abcde")
