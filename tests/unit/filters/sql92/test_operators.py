from __future__ import annotations

import pytest
from support.harness.source_tree import ROOT

from rocketray.filters.sql92 import compile_expression
from rocketray.filters.sql92.operators import TEXT_OPERATORS, Operator, TextOperator
from rocketray.kernels.condition_codes import Operation

TEXT_OPERATIONS = {one for one in Operation if one >= Operation.TEXT}


@pytest.mark.proves("documentation", "The table of operators on texts is that of the code")
def test_each_operator_is_a_row_of_the_documentation() -> None:
    page = (ROOT / "docs" / "reference" / "filters.md").read_text()
    section = page.partition("## Operators on texts\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `a ")]
    assert rows == [row(each) for each in TEXT_OPERATORS.values()]


def row(operator: TextOperator) -> str:
    written = f"`a [NOT] {operator.word} {operator.form.value}`"
    return (
        f"| {written} | {operator.summary} | {'`rocketray`' if operator.is_extension else 'both'} |"
    )


def test_each_instruction_on_texts_belongs_to_one_operator() -> None:
    operations = [each.operation for each in TEXT_OPERATORS.values()]
    assert len(operations) == len(TEXT_OPERATORS)
    assert set(operations) == TEXT_OPERATIONS


def test_a_comparison_accepts_the_orders_that_its_test_takes() -> None:
    for each in Operator:
        for order in (-1, 0, 1):
            assert each.test(order, 0) is bool(each.accepts >> (order + 1) & 1), each


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a IN ('x')", None),
        ("a NOT IN ('x')", None),
        ("a NOT LIKE 'x'", None),
        ("a CONTAINS 'x'", False),
        ("a NOT CONTAINS 'x'", False),
        ("b NOT CONTAINS ''", False),
    ],
)
def test_without_a_text_the_table_decides(condition: str, expected: object) -> None:
    assert compile_expression(condition, "rocketray").evaluate({"b": "y"}) is expected
