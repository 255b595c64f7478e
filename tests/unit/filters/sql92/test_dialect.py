"""The dialect "rocketray": RocketMQ's, with quoted names, LIKE, numbers in IN, and in every form."""

from __future__ import annotations

import re

import pytest
from support.models.expressions import with_numeric
from support.models.random_sql import spans_of
from support.rocketmq.golden import golden_rows

from rocketray.errors import EvaluationErrorKind, FilterEvaluationError, FilterSyntaxError
from rocketray.filters.sql92 import Dialect, compile_expression, parse, to_sql
from rocketray.filters.sql92.dialect import DIALECTS
from rocketray.filters.sql92.nodes import Property, TextTest
from rocketray.filters.sql92.operators import TEXT_OPERATORS
from rocketray.filters.sql92.program import state_of
from rocketray.filters.sql92.vectorized import VectorizedExpression
from rocketray.kernels.condition_codes import State


def answer(sql: str, value: str | None, dialect: Dialect = "rocketray") -> bool | str | None:
    """What an expression says of the property a; both evaluators agree on it."""
    compiled = compile_expression(sql, dialect)
    properties = {} if value is None else {"a": value}
    vectorized = VectorizedExpression(compiled)
    (state,) = vectorized.evaluate(*spans_of([properties], vectorized.names)).tolist()
    assert state == state_of(compiled.evaluate, properties)
    return {State.TRUE: True, State.FALSE: False, State.NULL: None}.get(State(state), "error")


def test_it_takes_all_that_rocketmqs_takes_and_means_the_same() -> None:
    count = 0
    for sql in {row["expr"] for row in golden_rows("sql92")}:
        try:
            tree = parse(sql)
        except FilterSyntaxError:
            continue
        assert parse(sql, "rocketray", 1) == tree
        assert parse(sql, "rocketray") == with_numeric(tree, numeric=True)
        count += 1
    assert count > 1000


@pytest.mark.proves(
    "filters",
    "`LIKE` and names in double quotes are the exception to the rule that no verdict of RocketMQ's "
    "is contradicted: it stops there, and evaluates what is before",
)
def test_rocketmq_evaluates_what_is_before_like_and_rocketray_the_pattern() -> None:
    begins = re.compile(r"(\w+) LIKE ").match
    rows = [row for row in golden_rows("sql92") if row["parse"] == "ok" and begins(row["expr"])]
    assert len(rows) > 1
    for row in rows:
        name = begins(row["expr"])[1]  # type: ignore[index]  # it does
        assert compile_expression(name).evaluate(row["props"]) is row["result"]
    assert answer("a", "x", "rocketmq") is False
    assert answer("a LIKE '%'", "x") is True
    with pytest.raises(FilterSyntaxError, match='or the dialect "rocketray"'):
        parse("a LIKE '%'")


@pytest.mark.parametrize(
    "name", ["a-b.c/d", "no name at all", "in", "NOT", "中文", "5", "it's", "--"]
)
def test_a_name_in_double_quotes_may_be_any(name: str) -> None:
    tree = parse(f'"{name}" = 1', "rocketray")
    assert to_sql(tree) == f'"{name}" = 1'
    compiled = compile_expression(f'"{name}" = 1', "rocketray")
    assert compiled.property_names == {name}
    assert compiled.matches({name: "1"})


def test_a_quoted_name_that_needs_no_quotes_is_the_plain_one() -> None:
    assert parse("\"a\" IN ('x')", "rocketray") == parse("a IN ('x')")


def test_like_and_escape_are_names_where_a_name_can_stand() -> None:
    tree = parse("like LIKE 'escape' ESCAPE '!' OR LIKE = Escape", "rocketray")
    assert to_sql(tree) == "like LIKE 'escape' ESCAPE '!' OR LIKE = Escape"
    assert parse("a NOT like 'x'", "rocketray") == TextTest(
        TEXT_OPERATORS["LIKE"], Property("a"), ("x",), negated=True
    )


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [""], ["x"]),
        ("%", ["", "x", "中文"], []),
        ("_", ["x", "中", "😀"], ["", "xx"]),
        ("a%", ["a", "abc"], ["", "ba", "A"]),
        ("%a", ["a", "ba"], ["ab"]),
        ("%a%b%", ["ab", "xaxbx"], ["ba", "a"]),
        ("a_c", ["abc", "a中c"], ["ac", "abbc"]),
        ("_%_", ["ab", "abc", "中文"], ["a", ""]),
        ("50!%", ["50%"], ["50", "500"]),
        ("!_!!", ["_!"], ["a!", "__"]),
        ("é%", ["é", "éa"], ["e\u0301"]),
        ("%\ufffd", ["\ufffd"], ["x"]),
        ("x" * 100 + "%", ["x" * 100], ["x" * 99]),
    ],
)
def test_like(pattern: str, matching: list[str], others: list[str]) -> None:
    like = f"a LIKE '{pattern}' ESCAPE '!'"
    assert [answer(like, text) for text in matching] == [True] * len(matching)
    assert [answer(like, text) for text in others] == [False] * len(others)
    assert [answer(f"NOT ({like})", text) for text in others] == [True] * len(others)
    assert answer(like, None) is None
    assert answer(like.replace("LIKE", "NOT LIKE"), None) is None


def test_numbers_in_a_list_are_compared_as_numbers() -> None:
    for short, long in (
        ("a IN (1, -2.5)", "a = 1 OR a = -2.5"),
        ("a NOT IN (1, +2)", "a <> 1 AND a <> 2"),
        ("a IN (1)", "a = 1"),
    ):
        assert parse(short, "rocketray") == parse(long, "rocketray")
        assert parse(short, "rocketray", 1) == parse(long)
    assert [answer("a IN (5, 7)", value) for value in ("05", "7", "6", None, "x")] == [
        *(True, True, False, None, "error")
    ]
    assert answer("a NOT IN (5, 7)", "6") is True


@pytest.mark.parametrize(
    ("sql", "marked", "reason"),
    [
        ("a IN (1, 'x')", "'x'", "must be a number"),
        ("a IN (1, b)", "b", "must be a number"),
        ("a IN ('x', 1)", "1", "expected a string"),
        ("'x' LIKE 'x'", "'x'", "only a property"),
        ("NOT a LIKE 'x'", "NOT a", "binds tighter than LIKE"),
        ("a LIKE b", "b", "expected a string"),
        ("a LIKE 'x' ESCAPE 'no'", "'x' ESCAPE 'no'", "one character"),
        ("a LIKE 'x!y' ESCAPE '!'", "'x!y' ESCAPE '!'", "is allowed only before"),
        ("a LIKE 'x!' ESCAPE '!'", "'x!' ESCAPE '!'", "is allowed only before"),
        ('a CONTAINS "x"', '"x"', "single quotes"),
        ('"" = 1', '"', "single quotes"),
    ],
)
def test_a_mistake_is_marked(sql: str, marked: str, reason: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(sql, "rocketray")
    assert sql[caught.value.start : caught.value.end] == marked
    assert reason in caught.value.reason


@pytest.mark.parametrize("sql", ['"a" = 1', "a LIKE 'x'", "a NOT LIKE 'x'", "a IN (1)"])
def test_rocketmqs_dialect_refuses_it_and_names_the_one_that_takes_it(sql: str) -> None:
    with pytest.raises(FilterSyntaxError, match='dialect "rocketray"'):
        compile_expression(sql)
    assert compile_expression(sql, "rocketray").sql == sql
    with pytest.raises(FilterSyntaxError):
        compile_expression(sql)


@pytest.mark.parametrize(
    ("sql", "value", "theirs", "ours"),
    [
        ("a BETWEEN 100 AND 500", "120.0", "error", True),
        ("a BETWEEN 100 AND 500", "99.0", "error", False),
        ("a > 5", "99999999999", "error", True),
        ("a = 5", "5.0", "error", True),
        ("a = 5", "+0.05E+2", "error", True),
        ("a < 5", ".5", "error", True),
        ("a = 0", "-0.0", "error", True),
        ("a > 9007199254740992", "9007199254740993", True, True),
        ("a = 9007199254740992", "9007199254740993.0", "error", False),
        ("a > 9223372036854775807", "9223372036854775807.1", "error", True),
        ("a > 5", "1e400", "error", True),
        ("a > -5", "-1e999999999", "error", False),
        ("a > 0", "1e-999999999999999999999", "error", True),
        ("a < 0", "-1e-999999999999999999999", "error", True),
        ("a = 5", "5" + "0" * 400 + "e-400", "error", True),
        ("a = 5", "0" * 400 + "5", True, True),
        # RocketMQ rounds beside a double, and its verdict stays.
        ("a = 9007199254740992.0", "9007199254740993", True, True),
        ("a > 5.0", "1e400", True, True),
        ("a > 5.0", "NaN", True, True),
        # Digits of other scripts are RocketMQ's: they count where it takes them.
        ("a = 5", "\uff15", True, True),
        ("a = 5", "\uff15.0", "error", "error"),
        ("a > 5", "\uff19" * 10, "error", "error"),
        ("a > 3000000000", "\uff19" * 10, True, True),
        *[
            ("a > 5", text, "error", "error")
            for text in ("", "abc", " 1", "1 ", "0x10", "5d", "NaN")
        ],
        *[
            ("a > 5", text, "error", "error")
            for text in ("Infinity", "1_0", "1e", ".", "+", "1e+", "--1")
        ],
        ("TRUE = a", "1", "error", "error"),
        ("5 < a", "5.5", "error", True),
        ("'5.0' = 5", "", "error", True),
        ("'x' = 5", "", "error", "error"),
    ],
)
def test_where_rocketmq_fails_on_the_form_of_a_number_numbers_are_compared(
    sql: str, value: str, theirs: object, ours: object
) -> None:
    assert answer(sql, value, "rocketmq") == theirs
    assert answer(sql, value) == ours


def test_two_properties_are_ordered_and_are_equal_as_in_rocketmq() -> None:
    for properties in (
        {"a": "9007199254740993", "b": "9007199254740992"},  # equal as doubles
        {"a": "-0.0", "b": "0.0"},
        {"a": "5", "b": "5.0"},
        {"a": "x", "b": "5"},
    ):
        for sql in ("a = b", "a < b", "a > b"):
            both = [state_of(compile_expression(sql, one).evaluate, properties) for one in DIALECTS]
            assert both[0] == both[1]


def test_what_is_no_number_is_called_so() -> None:
    with pytest.raises(FilterEvaluationError, match="a > 5: 'abc' is not a number") as caught:
        compile_expression("a > 5", "rocketray").evaluate({"a": "abc"})
    assert caught.value.kind is EvaluationErrorKind.NOT_DOUBLE


def test_the_first_rules_of_the_dialect_fail_as_rocketmq_does() -> None:
    first = compile_expression("a IN (5, 7)", "rocketray", 1)
    with pytest.raises(FilterEvaluationError):
        first.evaluate({"a": "5.0"})
    assert compile_expression("a IN (5, 7)", "rocketray").evaluate({"a": "5.0"}) is True
