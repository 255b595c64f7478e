"""Each operation of a program has a branch of its own; the properties of both are "5"."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.find import oracle_of
from support.models.random_sql import spans_of

from rocketray.filters.sql92.like import like_table
from rocketray.kernels.condition_codes import Accepts, Column, Operation, Rule, State
from rocketray.kernels.conditions import run_program

LIKE_5 = like_table("5")
# A to D, where the operation is TRUE for what register 0 (TRUE) or the properties 0 and 1 have. A
# new operation on a text needs no row.
TEXT = 0, State.TRUE, 0, 1
OPERANDS: dict[int, tuple[int, ...]] = {
    Operation.CONSTANT: (State.TRUE, 0, 0, 0),
    Operation.NOT: (1, 0, 0, 0),  # of the register that is FALSE
    Operation.IS_NULL: (0, State.FALSE, State.TRUE, 0),
    Operation.STATES: (0, Accepts.EQUAL, 0, Rule.BY_VALUE),
    Operation.TEXTS: (0, State.TRUE, 1, 0),
    Operation.INTEGER: (0, Accepts.EQUAL, 5, State.NOT_INT32),
    Operation.NUMBER: (0, Accepts.EQUAL, 5, 0),
    Operation.DOUBLE: (0, Accepts.EQUAL, 0, 0),
    Operation.NUMBERS: (0, Accepts.EQUAL, 1, 0),
}
BEYOND = max(Operation) + 1


def run(operation: int) -> State:
    """Return what an instruction makes of a row, with TRUE in register 0 and FALSE in register 1."""
    assert LIKE_5 is not None
    program = np.full((3, len(Column)), -1, np.int64)
    program[:, Column.TARGET :] = 0
    for step, (register, state) in enumerate([(0, State.TRUE), (1, State.FALSE)]):
        program[step, [Column.OPERATION, Column.REGISTER]] = Operation.CONSTANT, register
        program[step, Column.A] = state
    program[2, [Column.OPERATION, Column.REGISTER]] = operation, 0
    program[2, Column.A :] = OPERANDS.get(operation, TEXT)
    doubles, texts = np.array([5.0]), np.frombuffer(b"5", np.uint8)
    bounds, patterns = np.array([0, 1]), np.array(LIKE_5, np.int64)
    spans = spans_of([{"a": b"5", "b": b"5"}], ("a", "b"))
    ours, theirs = np.full((2, 1), 99, np.uint8)
    arguments = (*spans, program, doubles, texts, bounds, patterns)
    odd = run_program(*arguments, ours)
    assert oracle_of(run_program)(*arguments, theirs) == odd == (ours[0] == State.ODD)
    assert ours[0] == theirs[0]
    return State(int(ours[0]))


@pytest.mark.parametrize("operation", Operation)
def test_each_operation_has_a_branch(operation: Operation) -> None:
    expected = State.FALSE if operation is Operation.TRUTH else State.TRUE
    assert run(operation) is expected, f"{operation!r}: give it a branch in run_program"


@pytest.mark.parametrize("operation", [BEYOND, -1])
def test_an_operation_without_a_branch_is_no_other_operation(operation: int) -> None:
    assert run(operation) is State.ODD
