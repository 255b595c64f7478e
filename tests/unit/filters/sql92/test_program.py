"""Expressions become short programs that look at no more than they must."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from rocketray.filters.sql92 import parse
from rocketray.filters.sql92.nodes import Compare, Kind, Literal, Property
from rocketray.filters.sql92.operators import Operator
from rocketray.filters.sql92.program import compile_program
from rocketray.kernels.condition_codes import Column, Operation, State
from rocketray.kernels.records import Conditions


def compiled(sql: str) -> Conditions:
    return compile_program(parse(sql))


def operations(program: Conditions) -> list[Operation]:
    return [Operation(number) for number in program.program[:, Column.OPERATION]]


def test_a_flat_condition_takes_one_instruction_a_test() -> None:
    program = compiled("a BETWEEN 10 AND 20 AND region IN ('eu', 'us')")
    assert operations(program) == [Operation.INTEGER, Operation.INTEGER, Operation.TEXT]
    assert program.names.tobytes() == b"aregion"
    assert program.program[:, Column.TARGET].tolist() == [3, 3, 3]
    assert set(program.program[:, Column.STOP].tolist()) == {State.FALSE}
    assert set(program.program[:, Column.REGISTER].tolist()) == {0}


def test_an_inner_group_jumps_to_its_own_end() -> None:
    program = compiled("a = 1 AND (b = 2 OR c = 3) AND d = 4")
    kinds = operations(program)
    assert kinds == [*[Operation.INTEGER] * 3, Operation.MOVE, Operation.INTEGER]
    assert program.program[:, Column.TARGET].tolist() == [5, 3, 3, 5, 5]


def test_what_needs_no_message_is_settled_beforehand() -> None:
    program = compiled("1 = 1.0 AND 'x' = 1 AND 'ab' CONTAINS 'b'")
    assert operations(program) == [Operation.CONSTANT]
    assert program.program[0, Column.A] == State.NOT_INT32
    assert len(program.names) == 0


def test_texts_are_kept_once_and_in_the_order_of_the_bisection() -> None:
    program = compiled("a IN ('ccc', 'b', 'ccc', 'a', '中')")
    texts = program.texts.tobytes()
    wanted = [texts[a:b].decode() for a, b in pairwise(program.bounds.tolist())]
    assert wanted == ["a", "b", "ccc", "中"]
    assert program.program[0, Column.D] == 4
    assert program.program[0, Column.EXOTIC] == 0


@pytest.mark.parametrize("sql", ["a = '\ufffd'", "a IN ('x', '\ud800')", "a CONTAINS '\udfff'"])
def test_a_text_that_bytes_cannot_tell_is_exotic(sql: str) -> None:
    assert compiled(sql).program[0, Column.EXOTIC] == 1


def test_the_literal_on_the_left_mirrors_the_comparison_and_decides_about_absence() -> None:
    for mirrored, plain, absent in (
        ("5 < a", "a > 5", State.NULL),
        ("5 = a", "a = 5", State.FALSE),
        ("5 <> a", "a <> 5", State.TRUE),
    ):
        ours, theirs = compiled(mirrored).program[0], compiled(plain).program[0]
        assert ours[Column.B] == theirs[Column.B]
        assert (ours[Column.ABSENT], theirs[Column.ABSENT]) == (absent, State.NULL)


def test_a_comparison_that_the_parser_never_makes_is_left_to_the_scalar_evaluator() -> None:
    tree = Compare(Operator.LT, Property("a"), Literal(Kind.STRING, "5"))
    program = compile_program(tree)
    assert operations(program) == [Operation.CONSTANT]
    assert program.program[0, Column.A] == State.ODD


def test_arrays_have_the_types_that_kernels_take() -> None:
    program = compiled("a > 1.5 AND b = 'x' OR NULL")
    assert program.program.dtype == program.bounds.dtype == program.patterns.dtype == np.int64
    assert program.doubles.dtype == np.float64
    assert program.texts.dtype == np.uint8
