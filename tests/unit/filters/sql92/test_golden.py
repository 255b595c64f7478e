"""RocketMQ's own answers to 10,349 (expression, message) pairs, row by row."""

from __future__ import annotations

from functools import cache
from typing import Any

from support.models.random_sql import spans_of
from support.rocketmq.golden import golden_rows, sql92_differences

from rocketray.errors import FilterEvaluationError, FilterSyntaxError
from rocketray.filters.sql92 import compile_expression, parse
from rocketray.filters.sql92.vectorized import VectorizedExpression
from rocketray.kernels.condition_codes import State

ROWS = golden_rows("sql92")
DIFFERENCES = sql92_differences()


def ours(expression: str, properties: dict[str, str] | None) -> object:
    try:
        compiled = compile_expression(expression)
    except FilterSyntaxError:
        return "parse-error"
    try:
        return compiled.evaluate(properties)
    except FilterEvaluationError:
        return "error"


def theirs(row: dict[str, Any]) -> object:
    if row["parse"] != "ok":
        return "parse-error"
    result = row["result"]
    return "error" if isinstance(result, str) else result


def test_exactly_the_listed_rows_differ() -> None:
    assert len(ROWS) == 10_349
    differing = {
        row["id"] for row in ROWS if ours(row["expr"], row.get("props")) is not theirs(row)
    }
    listed = sql92_differences()
    assert differing == listed.keys()
    assert set(listed.values()) == {"trailing-text", "depth"}


def test_the_vectorized_form_answers_every_row_alike() -> None:
    answers = {State.TRUE: True, State.FALSE: False, State.NULL: None}
    compiled = cache(lambda sql: VectorizedExpression(compile_expression(sql)))
    for row in (row for row in ROWS if row["parse"] == "ok" and row["id"] not in DIFFERENCES):
        one = compiled(row["expr"])
        (state,) = one.evaluate(*spans_of([row.get("props") or {}], one.names))
        assert answers.get(State(state), "error") is theirs(row), row


def test_a_row_that_differs_by_trailing_text_agrees_without_it() -> None:
    for row in (row for row in ROWS if sql92_differences_of(row) == "trailing-text"):
        error = syntax_error(row["expr"])
        complete = row["expr"][: error.start]
        assert ours(complete, row.get("props")) is theirs(row), row


def test_a_row_that_differs_by_depth_says_so() -> None:
    for row in (row for row in ROWS if sql92_differences_of(row) == "depth"):
        assert "too deep" in syntax_error(row["expr"]).reason


def test_every_golden_error_draws_a_caret_under_its_place() -> None:
    for expression in {row["expr"] for row in ROWS if row["parse"] != "ok"}:
        error = syntax_error(expression)
        assert 0 <= error.start <= error.end <= len(expression)
        assert str(error).splitlines()[-1].strip("\t ").strip("^") == ""


def sql92_differences_of(row: dict[str, Any]) -> str | None:
    return DIFFERENCES.get(row["id"])


def syntax_error(expression: str) -> FilterSyntaxError:
    try:
        parse(expression)
    except FilterSyntaxError as error:
        return error
    raise AssertionError(f"{expression!r} parses")
