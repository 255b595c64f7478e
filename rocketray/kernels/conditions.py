"""One interpreter for every condition on properties: a program in arrays, run row by row.

Instructions run in the order in which the scalar evaluator walks the expression's tree, so a row
ends with an error exactly where that evaluator raises one. It ends with ODD where a value is too
unusual for a kernel (see ``numerals.py``), and at an operation without a branch. No expression
needs machine code of its own.
"""

from __future__ import annotations

import numpy as np

from ._compile import InBytes, InDoubles, InInt64Rows, InInt64s, OutBytes, device, kernel
from .condition_codes import Accepts, Column, Operation, Rule, State
from .intrinsics import load_native_u64
from .numerals import BAD, NUMERAL, order_number, read_double, read_integer
from .numerals import ODD as ODD_NUMERAL

_COLUMNS = len(Column)
_HIGH_BITS = np.uint64(0x8080808080808080)  # of eight bytes: set where one is not ASCII
_ASCII_END = 0x80
_CASE = 0x20  # the bit that is set in lower-case ASCII letters
_T, _R, _U, _E = 0x74, 0x72, 0x75, 0x65  # the letters of "true"


@device
def _is_ascii(text, start, end):
    while start + 8 <= end:
        if load_native_u64(text, start) & _HIGH_BITS != 0:
            return False
        start += 8
    while start < end:
        if text[start] >= _ASCII_END:
            return False
        start += 1
    return True


@device
def _order(left, left_start, right, right_start, size):
    """Return -1, 0 or 1 for the bytes of two texts of equal size."""
    for i in range(size):
        if left[left_start + i] != right[right_start + i]:
            return -1 if left[left_start + i] < right[right_start + i] else 1
    return 0


@device
def _is_one_of(segment, start, size, texts, bounds, first, count):
    """Return whether a span is one of several texts, by bisection."""
    low = first
    high = first + count
    while low < high:
        middle = (low + high) >> 1
        text = bounds[middle]
        order = size - (bounds[middle + 1] - text)
        if order == 0:
            order = _order(segment, start, texts, text, size)
            if order == 0:
                return True
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return False


@device
def _is_part(segment, start, size, texts, text, text_size, operation):
    """Return whether a span contains, starts or ends with a text that is not empty."""
    first = start
    last = start + size - text_size
    if operation == Operation.STARTSWITH:
        last = min(last, first)
    elif operation == Operation.ENDSWITH:
        first = max(first, last)
    for at in range(first, last + 1):
        if segment[at] == texts[text] and _order(segment, at, texts, text, text_size) == 0:
            return True
    return False


@device
def _is_like(segment, start, size, patterns, pattern):
    """Run the automaton, one step per byte: each of its possible states is a bit of ``states``."""
    states = np.int64(1)
    for at in range(start, start + size):
        onwards = (states & patterns[pattern + 2 + segment[at]]) << 1
        states = onwards | (states & patterns[pattern])
        if states == 0:
            return False
    return states & patterns[pattern + 1] != 0


@device
def _compare_doubles(left, right):
    """Compare as ``Double.compareTo`` two numbers that are not NaN: -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left != 0.0:
        return 0
    return np.int64(np.signbit(right)) - np.int64(np.signbit(left))


@device
def _compare_states(left, right, test, rule):
    is_equality = test in (Accepts.EQUAL, Accepts.UNEQUAL)
    if State.NULL in (left, right):
        # RocketMQ's rule, which is not symmetric: NULL = x is NULL, x = NULL is FALSE, NULL = NULL
        # is TRUE.
        if not is_equality or (left == State.NULL and right != State.NULL):
            return np.int64(State.NULL)
        return np.int64((test == Accepts.EQUAL) == (left == right))
    if rule == Rule.REFUSED:
        return np.int64(State.BOOLEAN_WITH_TEXT)
    if rule == Rule.ALWAYS_LESS:
        # RocketMQ's comparator says -1, whose bit in a test is bit 0.
        return np.int64(test & 1)
    return np.int64((test >> (np.int64(left > right) - np.int64(left < right) + 1)) & 1)


@device
def _compare_texts(segment, starts, sizes, left, right, row, when_equal):
    """Compare two properties by ``=``; either may be absent."""
    left_size = sizes[left, row]
    right_size = sizes[right, row]
    if left_size < 0:
        # As in _compare_states: the side that is absent decides between NULL and FALSE.
        return when_equal if right_size < 0 else np.int64(State.NULL)
    if right_size < 0:
        return 1 - when_equal
    left_start = starts[left, row]
    right_start = starts[right, row]
    assert 0 <= left_start <= len(segment) - left_size
    assert 0 <= right_start <= len(segment) - right_size
    if (
        left_size == right_size
        and _order(segment, left_start, segment, right_start, left_size) == 0
    ):
        return when_equal
    # Different bytes that are not UTF-8 may be read as the same text.
    if _is_ascii(segment, left_start, left_start + left_size):
        return 1 - when_equal
    if _is_ascii(segment, right_start, right_start + right_size):
        return 1 - when_equal
    return np.int64(State.ODD)


@device
def _compare_number(segment, start, size, test, constant, failure):
    """Compare a property with an integer; *failure* is the state of a text that Java refuses."""
    kind, value = read_integer(segment, start, start + size, failure == State.NOT_INT32)
    if kind == BAD:
        return failure
    if kind == ODD_NUMERAL:
        return np.int64(State.ODD)
    order = np.int64(value > constant) - np.int64(value < constant)
    return (test >> (order + 1)) & 1


@device
def _compare_exactly(segment, start, size, test, constant):
    """Compare a property with an integer by its value; most are integers, read directly."""
    kind, value = read_integer(segment, start, start + size, is_int32=False)
    if kind == NUMERAL:
        order = np.int64(value > constant) - np.int64(value < constant)
    elif kind == BAD:
        kind, order = order_number(segment, start, start + size, constant)
    else:
        order = np.int64(0)
    if kind == BAD:
        return np.int64(State.NOT_DOUBLE)
    if kind == ODD_NUMERAL:
        return np.int64(State.ODD)
    return (test >> (order + 1)) & 1


@device
def _compare_double(segment, start, size, test, constant):
    """Compare a property with a decimal number."""
    kind, value = read_double(segment, start, start + size)
    if kind == BAD:
        return np.int64(State.NOT_DOUBLE)
    if kind == ODD_NUMERAL:
        return np.int64(State.ODD)
    return (test >> (_compare_doubles(value, constant) + 1)) & 1


@device
def _compare_numbers(segment, start, size, other_start, other_size, test):
    """Compare two properties by ``<`` or a similar operator; the left one is read first."""
    left_kind, left = read_double(segment, start, start + size)
    if left_kind == BAD:
        return np.int64(State.NOT_DOUBLE)
    right_kind, right = read_double(segment, other_start, other_start + other_size)
    if ODD_NUMERAL in (left_kind, right_kind):
        return np.int64(State.ODD)
    if right_kind == BAD:
        return np.int64(State.NOT_DOUBLE)
    return (test >> (_compare_doubles(left, right) + 1)) & 1


@device
def _is_true(segment, start, size):
    return (
        size == 4
        and segment[start] | _CASE == _T
        and segment[start + 1] | _CASE == _R
        and segment[start + 2] | _CASE == _U
        and segment[start + 3] | _CASE == _E
    )


@kernel
def run_program(
    segment: InBytes,
    starts: InInt64Rows,
    sizes: InInt64Rows,
    program: InInt64Rows,
    doubles: InDoubles,
    texts: InBytes,
    bounds: InInt64s,
    patterns: InInt64s,
    states: OutBytes,
) -> int:
    """Write the state of each of *n* rows to ``states`` uint8[n]; return the number of ODD rows.

    ``starts``, ``sizes`` int64[p, n] are spans of *p* properties in ``segment``, a size below 0
    where a row has none. ``program`` int64[instructions, len(Column)] with its ``doubles``,
    ``patterns`` int64 and texts: text k is ``texts[bounds[k]:bounds[k + 1]]``. A row's state is
    the final value of register 0, or the first state other than FALSE, TRUE or NULL.
    """
    assert program.shape[1] == _COLUMNS
    assert starts.shape[0] == sizes.shape[0]
    assert starts.shape[1] == sizes.shape[1]
    odd = 0
    # Enough for every program: sql92/program.py asserts it.
    registers = np.empty(len(program) + 1, np.int64)
    for row in range(len(states)):
        at = np.int64(0)
        state = np.int64(State.NULL)
        while at < len(program):
            operation = program[at, Column.OPERATION]
            a = program[at, Column.A]
            b = program[at, Column.B]
            c = program[at, Column.C]
            if operation >= Operation.PRESENCE:
                size = sizes[a, row]
                start = starts[a, row]
                if size < 0:
                    state = program[at, Column.ABSENT]
                else:
                    assert 0 <= start <= len(segment) - size
                    if operation == Operation.NUMBER:
                        state = _compare_exactly(segment, start, size, b, c)
                    elif operation == Operation.INTEGER:
                        state = _compare_number(segment, start, size, b, c, program[at, Column.D])
                    elif operation == Operation.DOUBLE:
                        state = _compare_double(segment, start, size, b, doubles[c])
                    elif operation == Operation.NUMBERS:
                        other = sizes[c, row]
                        if other < 0:
                            state = np.int64(State.NULL)
                        else:
                            assert 0 <= starts[c, row] <= len(segment) - other
                            state = _compare_numbers(segment, start, size, starts[c, row], other, b)
                    elif operation == Operation.PRESENCE:
                        state = b
                    elif operation == Operation.TRUTH:
                        state = np.int64(_is_true(segment, start, size))
                    elif program[at, Column.EXOTIC] != 0 and not _is_ascii(
                        segment, start, start + size
                    ):
                        state = np.int64(State.ODD)
                    elif operation == Operation.TEXT:
                        count = program[at, Column.D]
                        is_match = _is_one_of(segment, start, size, texts, bounds, c, count)
                        state = b if is_match else 1 - b
                    elif operation == Operation.LIKE:
                        state = b if _is_like(segment, start, size, patterns, c) else 1 - b
                    elif Operation.CONTAINS <= operation <= Operation.ENDSWITH:
                        text_size = bounds[c + 1] - bounds[c]
                        is_match = _is_part(
                            segment, start, size, texts, bounds[c], text_size, operation
                        )
                        state = b if is_match else 1 - b
                    else:  # no branch here: never another operation's result
                        state = np.int64(State.ODD)
            elif operation == Operation.CONSTANT:
                state = a
            elif operation == Operation.MOVE:
                state = registers[a]
            elif operation == Operation.NOT:
                state = registers[a] if registers[a] == State.NULL else 1 - registers[a]
            elif operation == Operation.IS_NULL:
                state = b if registers[a] == State.NULL else c
            elif operation == Operation.STATES:
                state = _compare_states(registers[a], registers[c], b, program[at, Column.D])
            elif operation == Operation.TEXTS:
                state = _compare_texts(segment, starts, sizes, a, c, row, b)
            else:
                state = np.int64(State.ODD)
            if state > State.NULL:
                break
            if state != program[at, Column.NEUTRAL]:
                registers[program[at, Column.REGISTER]] = state
            at = program[at, Column.TARGET] if state == program[at, Column.STOP] else at + 1
        states[row] = state if state > State.NULL else registers[0]
        odd += state == State.ODD
    return odd
