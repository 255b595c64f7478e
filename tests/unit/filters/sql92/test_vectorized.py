"""Many messages at once: spans, Arrow columns and maps, and what the kernel leaves to others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from support.random_sql import spans_of

from rocketray.errors import ConfigError
from rocketray.filters.sql92 import compile_expression
from rocketray.filters.sql92.vectorized import State, VectorizedExpression

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


def column(name: str) -> pa.Array:
    return pa.array([row.get(name) for row in ROWS], pa.string())


def test_arrow_columns_answer_alike_also_when_sliced() -> None:
    batch = pa.record_batch({"a": column("a"), "other": column("b"), "region": column("region")})
    assert IN_RANGE.evaluate_arrow(batch).tolist() == STATES
    assert IN_RANGE.evaluate_arrow(batch.slice(1, 2)).tolist() == STATES[1:3]
    assert IN_RANGE.evaluate_arrow(batch.slice(0, 0)).tolist() == []


def test_a_missing_and_a_null_column_are_absent_properties() -> None:
    without = pa.record_batch({"region": column("region"), "a": pa.nulls(4)})
    assert vectorized("a IS NULL AND b IS NULL").evaluate_arrow(without).tolist() == [1] * 4


def test_a_map_of_properties_answers_alike_and_the_last_of_a_name_counts() -> None:
    pairs = [list(row.items()) for row in ROWS]
    pairs[0] = [("a", "x"), *pairs[0]]
    maps = pa.array([*pairs, None], pa.map_(pa.string(), pa.string()))
    batch = pa.record_batch({"body": pa.array([b""] * 5), "properties": maps})
    assert IN_RANGE.evaluate_arrow(batch).tolist() == [*STATES, State.NULL]
    assert IN_RANGE.evaluate_arrow(batch.slice(3)).tolist() == [STATES[3], State.NULL]
    assert IN_RANGE.evaluate_arrow(batch.slice(0, 0)).tolist() == []


def test_a_column_of_numbers_is_refused_with_its_name() -> None:
    batch = pa.record_batch({"a": pa.array([1]), "region": pa.array(["eu"])})
    with pytest.raises(ConfigError, match="'a' has type int64"):
        IN_RANGE.evaluate_arrow(batch)


def test_states_are_bytes() -> None:
    assert IN_RANGE.evaluate(*spans_of(ROWS, IN_RANGE.names)).dtype == np.uint8
