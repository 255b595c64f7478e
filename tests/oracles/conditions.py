"""The kernel of ``rocketray/kernels/conditions.py`` in plain Python: one row at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from oracles.numerals import order_number, read_double, read_integer

from rocketray.kernels._compile import Bytes, Doubles, Int64s
from rocketray.kernels.condition_codes import Accepts, Column, Operation, Rule, State
from rocketray.kernels.numerals import BAD, NUMERAL

_PARTS = (Operation.CONTAINS, Operation.STARTSWITH, Operation.ENDSWITH)


def run_program(
    segment: Bytes,
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    program: npt.NDArray[np.int64],
    doubles: Doubles,
    texts: Bytes,
    bounds: Int64s,
    patterns: Int64s,
    states: Bytes,
) -> int:
    wanted = [texts[a:b].tobytes() for a, b in pairwise(bounds.tolist())]
    machine = _Machine(program.tolist(), doubles.tolist(), wanted, patterns.tolist())
    for row in range(len(states)):
        spans = zip(starts[:, row].tolist(), sizes[:, row].tolist(), strict=True)
        values = [
            None if size < 0 else segment[start : start + size].tobytes() for start, size in spans
        ]
        states[row] = machine.run(values)
    return int(np.count_nonzero(states == State.ODD))


@dataclass(frozen=True, slots=True)
class _Machine:
    program: list[list[int]]
    doubles: list[float]
    texts: list[bytes]
    patterns: list[int]

    def run(self, values: list[bytes | None]) -> int:
        """Return the state of a row with these properties."""
        registers = [0] * (len(self.program) + 1)
        at = 0
        while at < len(self.program):
            step = self.program[at]
            if step[Column.OPERATION] >= Operation.PRESENCE:
                state = self._of_property(step, values)
            else:
                state = _of_registers(step, registers, values)
            if state > State.NULL:
                return state
            if state != step[Column.NEUTRAL]:
                registers[step[Column.REGISTER]] = state
            at = step[Column.TARGET] if state == step[Column.STOP] else at + 1
        return registers[0]

    def _of_property(self, step: list[int], values: list[bytes | None]) -> int:
        operation = step[Column.OPERATION]
        a, b, c, d = step[Column.A :]
        value = values[a]
        if value is None:
            return step[Column.ABSENT]
        if operation == Operation.PRESENCE:
            return b
        if operation == Operation.TRUTH:
            return int(value.lower() == b"true")
        if operation == Operation.INTEGER:
            return _beside_integer(value, b, c, d)
        if operation == Operation.NUMBER:
            return _beside_number(value, b, c)
        if operation == Operation.DOUBLE:
            return _beside_double(read_double(value), (NUMERAL, self.doubles[c]), b)
        if operation == Operation.NUMBERS:
            other = values[c]
            if other is None:
                return State.NULL
            return _beside_double(read_double(value), read_double(other), b)
        if step[Column.EXOTIC] and not value.isascii():
            return State.ODD
        if operation not in (Operation.TEXT, *_PARTS, Operation.LIKE):
            return State.ODD
        return b if self._is_so(operation, value, c, d) else 1 - b

    def _is_so(self, operation: int, value: bytes, first: int, count: int) -> bool:
        if operation == Operation.TEXT:
            return value in self.texts[first : first + count]
        if operation == Operation.CONTAINS:
            return self.texts[first] in value
        if operation == Operation.STARTSWITH:
            return value.startswith(self.texts[first])
        if operation == Operation.ENDSWITH:
            return value.endswith(self.texts[first])
        repeated, accepted, *onwards = self.patterns[first : first + 258]
        states = 1
        for byte in value:
            states = (states & onwards[byte]) << 1 | (states & repeated)
        return states & accepted != 0


def _of_registers(step: list[int], registers: list[int], values: list[bytes | None]) -> int:
    operation = step[Column.OPERATION]
    a, b, c, d = step[Column.A :]
    if operation == Operation.CONSTANT:
        return a
    if operation == Operation.MOVE:
        return registers[a]
    if operation == Operation.NOT:
        return State.NULL if registers[a] == State.NULL else 1 - registers[a]
    if operation == Operation.IS_NULL:
        return b if registers[a] == State.NULL else c
    if operation == Operation.STATES:
        return _compare_states(registers[a], registers[c], b, d)
    if operation == Operation.TEXTS:
        return _compare_texts(values[a], values[c], b)
    return State.ODD


def _compare_states(left: int, right: int, test: int, rule: int) -> int:
    is_order = test not in (Accepts.EQUAL, Accepts.UNEQUAL)
    if State.NULL in (left, right):
        if is_order or (left == State.NULL and right != State.NULL):
            return State.NULL
        return int((test == Accepts.EQUAL) == (left == right))
    if rule == Rule.REFUSED:
        return State.BOOLEAN_WITH_TEXT
    order = -1 if rule == Rule.ALWAYS_LESS else (left > right) - (left < right)
    return _accepted(test, order)


def _compare_texts(left: bytes | None, right: bytes | None, when_equal: int) -> int:
    if left is None:
        return when_equal if right is None else State.NULL
    if right is None:
        return 1 - when_equal
    if left == right:
        return when_equal
    # Different bytes that are not UTF-8 may be read as the same text.
    return 1 - when_equal if left.isascii() or right.isascii() else State.ODD


def _beside_integer(value: bytes, test: int, constant: int, failure: int) -> int:
    kind, number = read_integer(value, is_int32=failure == State.NOT_INT32)
    if kind == NUMERAL:
        return _accepted(test, (number > constant) - (number < constant))
    return failure if kind == BAD else State.ODD


def _beside_number(value: bytes, test: int, constant: int) -> int:
    kind, order = order_number(value, constant)
    if kind == NUMERAL:
        return _accepted(test, order)
    return State.NOT_DOUBLE if kind == BAD else State.ODD


def _beside_double(left: tuple[int, float], right: tuple[int, float], test: int) -> int:
    if left[0] == BAD:
        return State.NOT_DOUBLE
    if left[0] == right[0] == NUMERAL:
        keys = [(number, math.copysign(1.0, number)) for _, number in (left, right)]
        return _accepted(test, (keys[0] > keys[1]) - (keys[0] < keys[1]))
    return State.NOT_DOUBLE if left[0] == NUMERAL and right[0] == BAD else State.ODD


def _accepted(test: int, order: int) -> int:
    return test >> order + 1 & 1
