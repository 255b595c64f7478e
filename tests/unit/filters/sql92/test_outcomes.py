"""What a condition can come to: never an outcome too few, and exactly right for one property."""

from __future__ import annotations

import pytest
from hypothesis import given
from support.harness.amounts import examples
from support.models.expressions import messages, trees

from rocketray.errors import FilterEvaluationError
from rocketray.filters.sql92 import compile_expression, parse
from rocketray.filters.sql92.evaluator import compile_tree
from rocketray.filters.sql92.nodes import Expression, is_boolean
from rocketray.filters.sql92.outcomes import Outcome, outcomes

BY_VALUE = {True: Outcome.TRUE, False: Outcome.FALSE, None: Outcome.NULL}
T, F, U, E = Outcome.TRUE, Outcome.FALSE, Outcome.NULL, Outcome.ERROR


def outcome(tree: Expression, properties: dict[str, str]) -> Outcome:
    try:
        return BY_VALUE[compile_tree(tree)(properties)]
    except FilterEvaluationError:
        return Outcome.ERROR


@examples(500)
@given(trees().filter(is_boolean), messages())
def test_what_happens_was_possible(tree: Expression, properties: dict[str, str]) -> None:
    assert outcome(tree, properties) in outcomes(tree)


@pytest.mark.parametrize(
    ("sql", "possible"),
    [
        ("TRUE", {T}),
        ("NULL", {U}),
        ("1 = 2", {F}),
        ("'x' = 1", {E}),
        ("a", {F, U}),
        ("a = 'x'", {T, F, U}),
        ("a > 5", {T, F, U, E}),
        ("a IS NULL OR a IS NOT NULL", {T}),
        ("a > 5 AND a < 3", {F, U, E}),
        ("a > 5 AND a < 7", {T, F, U, E}),
        ("a > 5 AND a < 6", {F, U, E}),
        ("a > 5.0 AND a < 6.0", {T, F, U, E}),
        ("a < 1.0 OR a > 2.0 OR a BETWEEN 1.0 AND 2.0", {T, U, E}),
        ("a < 1 OR a >= 1 OR a IS NULL", {T, E}),
        ("a = 5 AND a <> '5'", {T, F, U, E}),  # 05
        ("a >= 5000000000 AND a < 10", {F, U, E}),
        ("a = 'x' AND a = 'y'", {F, U}),
        ("a IN ('x', 'y') AND a NOT IN ('y', 'x')", {F, U}),
        ("a = TRUE AND a = FALSE", {F, U}),
        ("a CONTAINS 'x'", {T, F}),
        ("a = 'x' AND b = 'y' AND a = 'z'", {F, U}),
        ("a = 'x' AND b = 'y'", {T, F, U}),
        ("NOT (a = 'x' AND b = 'y')", {T, F, U}),
        ("a = b", {T, F, U, E}),
    ],
)
def test_what_is_possible(sql: str, possible: set[Outcome]) -> None:
    assert outcomes(parse(sql)) == possible


@pytest.mark.parametrize(
    ("sql", "possible"),
    [
        ("a > 5", {T, F, U, E}),
        ("a > 5 AND a < 6", {T, F, U, E}),
        ("a > 5 AND a < 3", {F, U, E}),
        ("a > 5 AND a <= 5", {F, U, E}),
        ("a > 9007199254740993 AND a < 9007199254740994", {T, F, U, E}),
        ("a > 9223372036854775806 AND a < 9223372036854775807", {T, F, U, E}),
        ("a < 0 AND a > -1", {T, F, U, E}),
        ("a > 0 AND a < 4.9E-324", {T, F, U, E}),  # rounded to 0 beside the double
        ("a > 9223372036854775807", {T, F, U, E}),
        ("a = 9007199254740993 AND a = 9007199254740992.0", {T, F, U, E}),
        ("a = 9007199254740993 AND a = 9007199254740996.0", {F, U, E}),
        ("a < 1 OR a >= 1 OR a IS NULL", {T, E}),
    ],
)
def test_numbers_in_any_form_are_tried_where_they_count(sql: str, possible: set[Outcome]) -> None:
    assert outcomes(parse(sql, "rocketray")) == possible


def test_a_large_expression_is_settled_quickly() -> None:
    many = " OR ".join(f"(a > {n} AND b = '{n}')" for n in range(120))
    assert outcomes(compile_expression(many).tree) == {T, F, U, E}
    items = ", ".join(f"'{n}'" for n in range(500))
    assert T in outcomes(parse(f"a IN ({items})"))
