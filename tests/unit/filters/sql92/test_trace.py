from __future__ import annotations

import re

import pytest
from hypothesis import given
from support.harness.amounts import examples
from support.models.expressions import messages, trees

from rocketray.errors import FilterEvaluationError
from rocketray.filters.sql92.evaluator import compile_tree
from rocketray.filters.sql92.nodes import Expression
from rocketray.filters.sql92.outcomes import Outcome
from rocketray.filters.sql92.parser import parse
from rocketray.filters.sql92.trace import trace


def outcomes(sql: str, **properties: str) -> list[tuple[str, str]]:
    return [(step.expression, step.outcome.value) for step in trace(parse(sql), properties)]


def test_each_part_stands_below_its_whole_in_the_order_of_evaluation() -> None:
    assert outcomes("a > 5 AND region IN ('eu') OR b = 'x'", a="6", region="us") == [
        ("a > 5 AND region IN ('eu') OR b = 'x'", "null"),
        ("a > 5 AND region IN ('eu')", "false"),
        ("a > 5", "true"),
        ("region IN ('eu')", "false"),
        ("b = 'x'", "null"),
    ]
    depths = [step.depth for step in trace(parse("NOT (a > 5)"), {})]
    assert depths == [0, 1]


def test_what_is_not_looked_at_is_skipped() -> None:
    assert outcomes("a = 1 AND (b = 2 OR c = 3)", a="0", b="no number")[2:] == [
        ("b = 2 OR c = 3", "skipped"),
        ("b = 2", "skipped"),
        ("c = 3", "skipped"),
    ]
    assert outcomes("a = 1 OR b = 2", a="1")[2] == ("b = 2", "skipped")


def test_an_error_names_its_part_and_ends_the_evaluation() -> None:
    steps = trace(parse("a = 1 OR b = 2"), {"a": "5.5", "b": "2"})
    assert [step.outcome for step in steps] == [
        Outcome.ERROR,
        Outcome.ERROR,
        Outcome.SKIPPED,
    ]
    assert steps[1].error is not None
    assert "'5.5' is not a 32-bit integer" in steps[1].error


def test_values_are_the_properties_that_a_part_names() -> None:
    (whole, first, second) = trace(parse("a = 'x' AND b = c"), {"a": "x", "c": "1", "z": "0"})
    assert whole.values == {"a": "x", "b": None, "c": "1"}
    assert first.values == {"a": "x"}
    assert second.values == {"b": None, "c": "1"}


def test_a_value_that_a_terminal_would_act_on_is_shown_escaped() -> None:
    (step,) = trace(parse("a = 'x'"), {"a": "\x1b[2J" + "y" * 500})
    assert step.values["a"] is not None
    assert step.values["a"].isprintable()
    assert len(step.values["a"]) < 100


@examples(500)
@given(trees(), messages())
def test_the_first_step_is_what_the_evaluator_says(
    tree: Expression, properties: dict[str, str]
) -> None:
    first = trace(tree, properties)[0]
    if first.outcome is Outcome.ERROR:
        with pytest.raises(FilterEvaluationError, match=re.escape(first.error or "?")):
            compile_tree(tree)(properties)
    else:
        worth = {"true": True, "false": False, "null": None}
        assert worth[first.outcome.value] is compile_tree(tree)(properties)
