"""A syntax tree as a program for the kernel that evaluates conditions on properties.

- The program reads a row in the order of the scalar evaluator, and ends where that one raises.
- Parts without a property are evaluated at compile time, by the scalar evaluator.
- A comparison that the parser never makes becomes an instruction with the result ODD, which sends
  the row to the scalar evaluator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rocketray.errors import FilterEvaluationError
from rocketray.kernels.condition_codes import Accepts, Column, Operation, Rule, State
from rocketray.kernels.properties import join_names
from rocketray.kernels.records import Conditions

from . import nodes
from .coercion import to_boolean
from .evaluator import Evaluator, Properties, compile_tree
from .nodes import Expression, Kind, as_literal, kind_of, property_names
from .operators import IN, Encoded

# A literal on the left: 5 < a is a > 5 for the instruction, which has the property first.
_MIRRORED = {
    Accepts.LESS: Accepts.GREATER,
    Accepts.LESS_OR_EQUAL: Accepts.GREATER_OR_EQUAL,
    Accepts.GREATER: Accepts.LESS,
    Accepts.GREATER_OR_EQUAL: Accepts.LESS_OR_EQUAL,
}
_EQUALITIES = (Accepts.EQUAL, Accepts.UNEQUAL)  # they compare texts as texts, the others as numbers
_FAILURES = {Kind.INT32: State.NOT_INT32, Kind.INT64: State.NOT_INT64}
_NEVER = -1  # not a state: neither neutral nor a reason to jump


@dataclass(frozen=True, slots=True)
class _Into:
    """The target of a state: it sets *register* unless *neutral*; *stop* ends an AND or OR."""

    register: int
    neutral: int = _NEVER
    stop: int = _NEVER

    def above(self, number: int = 1, *, stop: int = _NEVER) -> _Into:
        """Return a register that is free while this one's state is computed."""
        return _Into(self.register + number, stop=stop)


def compile_program(tree: Expression) -> Conditions:
    """Return the program of *tree*, which must be a truth value.

    Its instructions name properties by their number among the sorted names in *tree*.
    """
    compiler = _Compiler(tuple(sorted(property_names(tree))))
    compiler.condition(tree, _Into(0))
    return compiler.program()


def state_of(evaluate: Evaluator, properties: Properties) -> State:
    """Return the scalar evaluator's result as a state."""
    try:
        value = evaluate(properties)
    except FilterEvaluationError as error:
        return State[error.kind.name]
    return State.NULL if value is None else State(value)


class _Compiler:
    """The growing program. Each method ends with the instruction that sets its register."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._numbers = {name: number for number, name in enumerate(names)}
        self._code: list[list[int]] = []
        self._doubles: list[float] = []
        self._texts: list[bytes] = []
        self._patterns: list[int] = []

    def program(self) -> Conditions:
        """Return the program as arrays, the kernel's input; see ``kernels/condition_codes.py``."""
        code = np.array(self._code, np.int64)
        assert code[:, Column.REGISTER].max() <= len(code)  # the kernel has no room for more
        bounds = np.cumsum([0, *map(len, self._texts)], dtype=np.int64)
        texts = np.frombuffer(b"".join(self._texts), np.uint8)
        doubles, patterns = np.array(self._doubles, float), np.array(self._patterns, np.int64)
        return Conditions(*join_names(self._names), code, doubles, texts, bounds, patterns)

    def condition(self, node: Expression, into: _Into) -> None:
        """Append the state of *node*, a truth value."""
        if property_names(node):
            _COMPILERS[type(node)](self, node, into)
        else:
            self._emit(Operation.CONSTANT, into, state_of(compile_tree(node), {}))

    # -- logic --------------------------------------------------------------------------------

    def join(self, node: nodes.And | nodes.Or, into: _Into) -> None:
        """Append operands up to the first that decides: FALSE for AND, TRUE for OR."""
        deciding = State(isinstance(node, nodes.Or))
        is_final = into == _Into(into.register)
        target = into if is_final else into.above()
        exits = []
        for number, operand in enumerate(node.operands):
            neutral = 1 - deciding if number else _NEVER
            self.condition(operand, _Into(target.register, neutral, deciding))
            exits.append(len(self._code) - 1)
        self._land(exits)
        if not is_final:
            self._emit(Operation.MOVE, into, target.register)

    def negation(self, node: nodes.Not, into: _Into) -> None:
        """Append NOT of a truth value, whose register is above the target's."""
        self.condition(node.operand, into.above())
        self._emit(Operation.NOT, into, into.register + 1)

    def cast(self, node: nodes.BooleanCast, into: _Into) -> None:
        """Append a property as a truth value."""
        self._ask(Operation.PRESENCE, into, node.operand, State.FALSE, absent=State.NULL)

    # -- comparisons --------------------------------------------------------------------------

    def comparison(self, node: nodes.Compare, into: _Into) -> None:
        """Append ``=``, ``<`` or a similar operator, by the kinds of both sides."""
        accepts = node.operator.accepts
        left, right = node.left, node.right
        if isinstance(left, nodes.Property) and isinstance(right, nodes.Property):
            self._properties(accepts, left, right, into)
        elif isinstance(left, nodes.Property) and (literal := _value(right)):
            self._beside(left, accepts, literal, into, State.NULL, numeric=node.numeric)
        elif isinstance(right, nodes.Property) and (literal := _value(left)):
            absent = State(accepts is Accepts.UNEQUAL) if accepts in _EQUALITIES else State.NULL
            mirrored = _MIRRORED.get(accepts, accepts)
            self._beside(right, mirrored, literal, into, absent, numeric=node.numeric)
        else:
            self._states(accepts, left, right, into)

    def _properties(
        self, accepts: Accepts, left: nodes.Property, right: nodes.Property, into: _Into
    ) -> None:
        other = self._numbers[right.name]
        if accepts in _EQUALITIES:
            when_equal = State(accepts is Accepts.EQUAL)
            self._emit(Operation.TEXTS, into, self._numbers[left.name], when_equal, other)
        else:
            self._ask(Operation.NUMBERS, into, left, accepts, other, absent=State.NULL)

    def _beside(
        self,
        left: nodes.Property,
        accepts: Accepts,
        literal: nodes.Literal,
        into: _Into,
        absent: State,
        *,
        numeric: bool,
    ) -> None:
        constant: Any = literal.value
        if numeric and literal.kind in _FAILURES:
            self._ask(Operation.NUMBER, into, left, accepts, constant, absent=absent)
        elif literal.kind in _FAILURES:
            failure = _FAILURES[literal.kind]
            self._ask(Operation.INTEGER, into, left, accepts, constant, failure, absent=absent)
        elif literal.kind is Kind.DOUBLE:
            self._doubles.append(constant)
            number = len(self._doubles) - 1
            self._ask(Operation.DOUBLE, into, left, accepts, number, absent=absent)
        elif accepts in _EQUALITIES:
            when_equal = State(accepts is Accepts.EQUAL)
            encoded = IN.encode((constant,))
            self._ask_text(IN.operation, into, left, encoded, when_equal, absent=absent)
        else:
            self._emit(Operation.CONSTANT, into, State.ODD)

    def _states(self, accepts: Accepts, left: Expression, right: Expression, into: _Into) -> None:
        """Append a truth value or null on one side; for ``<`` the left side is evaluated first."""
        kinds = kind_of(left), kind_of(right)
        rule = Rule.ALWAYS_LESS
        if kinds[1] is Kind.BOOLEAN and kinds[0] in (Kind.BOOLEAN, Kind.STRING):
            rule = Rule.BY_VALUE
        elif kinds == (Kind.BOOLEAN, Kind.STRING):
            rule = Rule.REFUSED
        is_order = accepts not in _EQUALITIES
        first, second = into.above(stop=State.NULL if is_order else _NEVER), into.above(2)
        self._load(left, first, is_truth=rule is Rule.BY_VALUE)
        exit_at = len(self._code) - 1
        self._load(right, second, is_truth=rule is Rule.BY_VALUE)
        result = into.above() if is_order else into
        operands = first.register, accepts, second.register, rule
        self._emit(Operation.STATES, result, *operands)
        if is_order:
            self._land([exit_at])
            self._emit(Operation.MOVE, into, result.register)

    def _load(self, node: Expression, into: _Into, *, is_truth: bool) -> None:
        """Append the truth value of an operand, or only whether it has a value."""
        literal = _value(node)
        if isinstance(node, nodes.Property):
            operation = Operation.TRUTH if is_truth else Operation.PRESENCE
            self._ask(operation, into, node, State.TRUE, absent=State.NULL)
        elif literal is not None:
            is_true = not is_truth or to_boolean(str(literal.value))
            self._emit(Operation.CONSTANT, into, State(is_true))
        elif isinstance(node, nodes.Negate):
            self._load(node.operand, _Into(into.register), is_truth=False)  # for its error
            self._emit(Operation.CONSTANT, into, State.NULL)
        else:
            self.condition(node, into)

    # -- the other tests ----------------------------------------------------------------------

    def is_null(self, node: nodes.IsNull, into: _Into) -> None:
        """Append IS NULL, of any operand."""
        when_null, otherwise = State(not node.negated), State(node.negated)
        if isinstance(node.operand, nodes.Property):
            self._ask(Operation.PRESENCE, into, node.operand, otherwise, absent=when_null)
        else:
            self._load(node.operand, into.above(), is_truth=False)
            self._emit(Operation.IS_NULL, into, into.register + 1, when_null, otherwise)

    def text_test(self, node: nodes.TextTest, into: _Into) -> None:
        """Append CONTAINS, IN or similar: false for anything but a text or an absent property."""
        operator, operand = node.operator, node.operand
        if isinstance(operand, nodes.Property) and not node.is_never_true:
            absent = State.NULL if operator.absent is None else State(operator.absent)
            encoded, passes = operator.encode(node.constants), State(not node.negated)
            self._ask_text(operator.operation, into, operand, encoded, passes, absent=absent)
            return
        if not node.is_never_true:
            self._load(operand, into.above(), is_truth=False)  # for its error
        self._emit(Operation.CONSTANT, into, State.FALSE)

    def _ask_text(
        self,
        operation: Operation,
        into: _Into,
        left: nodes.Property,
        encoded: Encoded | None,
        passes: State,
        *,
        absent: State,
    ) -> None:
        """Append a test of a text; the scalar evaluator makes those that the kernel cannot."""
        if encoded is None:
            self._emit(Operation.CONSTANT, into, State.ODD)
            return
        first = len(self._patterns) if encoded.pattern else len(self._texts)
        self._texts += encoded.texts
        self._patterns += encoded.pattern
        operands = passes, first, len(encoded.texts)
        self._ask(operation, into, left, *operands, absent=absent, is_exotic=encoded.is_exotic)

    # -- instructions -------------------------------------------------------------------------

    def _ask(
        self,
        operation: Operation,
        into: _Into,
        left: nodes.Property,
        *operands: int,
        absent: State,
        is_exotic: bool = False,
    ) -> None:
        """Append an instruction on a property."""
        self._emit(operation, into, self._numbers[left.name], *operands)
        self._code[-1][Column.ABSENT] = absent
        self._code[-1][Column.EXOTIC] = is_exotic

    def _emit(self, operation: Operation, into: _Into, *operands: int) -> None:
        step = [0] * len(Column)
        step[: Column.TARGET] = operation, into.register, into.neutral, into.stop
        step[Column.A : Column.A + len(operands)] = operands
        self._code.append(step)

    def _land(self, exits: list[int]) -> None:
        """Make the instructions at *exits* jump to the next one."""
        for number in exits:
            self._code[number][Column.TARGET] = len(self._code)


def _value(node: Expression) -> nodes.Literal | None:
    """Return *node* if it is a literal number or text."""
    literal = as_literal(node)
    is_value = literal is not None and literal.kind not in (Kind.BOOLEAN, Kind.NULL)
    return literal if is_value else None


_COMPILERS: dict[type, Callable[[_Compiler, Any, _Into], None]] = {
    nodes.And: _Compiler.join,
    nodes.Or: _Compiler.join,
    nodes.Not: _Compiler.negation,
    nodes.BooleanCast: _Compiler.cast,
    nodes.Compare: _Compiler.comparison,
    nodes.IsNull: _Compiler.is_null,
    nodes.TextTest: _Compiler.text_test,
}
