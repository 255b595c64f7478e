"""Many messages at once: what the kernel decides, and what it leaves to others."""

from __future__ import annotations

import numpy as np
import pytest
from support.models.random_sql import spans_of

from rocketray.filters.sql92 import compile_expression
from rocketray.filters.sql92.vectorized import VectorizedExpression
from rocketray.kernels.condition_codes import State

ROWS = [{"a": "15", "region": "eu"}, {"a": "25", "region": "eu"}, {"region": "us"}, {"a": "many"}]
STATES = [State.TRUE, State.FALSE, State.NULL, State.NOT_INT32]


def vectorized(sql: str) -> VectorizedExpression:
    return VectorizedExpression(compile_expression(sql))


IN_RANGE = vectorized("a BETWEEN 10 AND 20 AND region IN ('eu', 'us')")


def test_a_row_is_true_false_unknown_or_an_error_of_some_kind() -> None:
    assert IN_RANGE.names == ("a", "region")
    assert IN_RANGE.evaluate(*spans_of(ROWS, IN_RANGE.names)).tolist() == STATES


@pytest.mark.parametrize(
    ("sql", "value", "state"),
    [
        ("a > 5", "x", State.NOT_INT32),
        ("a > 5000000000", "x", State.NOT_INT64),
        ("a > 5.5", "x", State.NOT_DOUBLE),
        ("TRUE = a", "true", State.BOOLEAN_WITH_TEXT),
        ("a > 5", "５", State.FALSE),
        ("a > 5", "x５", State.NOT_INT32),
        ("a >= 8.0", "0x1p3", State.TRUE),
        ("a = 0.1", "0.1000000000000000055511151231257827", State.TRUE),
        ("a = '\ufffd'", "\ufffd", State.TRUE),
    ],
)
def test_kinds_of_errors_and_odd_values(sql: str, value: str, state: State) -> None:
    one = vectorized(sql)
    assert one.evaluate(*spans_of([{"a": value}], one.names)).tolist() == [state]


def test_an_expression_without_properties_answers_every_row() -> None:
    one = vectorized("TRUE OR a = 1")
    assert one.evaluate(*spans_of([{}, {"a": "x"}], one.names)).tolist() == [State.TRUE] * 2
    assert vectorized("NULL").evaluate(*spans_of([{}] * 2, ())).tolist() == [State.NULL] * 2
    assert len(one.evaluate(*spans_of([], one.names))) == 0


def test_states_are_bytes() -> None:
    assert IN_RANGE.evaluate(*spans_of(ROWS, IN_RANGE.names)).dtype == np.uint8
