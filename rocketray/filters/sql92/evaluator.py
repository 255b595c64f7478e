"""A syntax tree as nested closures: the scalar evaluator, and the oracle of all others.

- Three-valued logic: True, False, and None for unknown.
- Operands are evaluated left to right, and no further than AND and OR need, so an error surfaces
  exactly where RocketMQ raises one.
- Everything known before a message is seen (kinds, names, conversions) is settled when the closures
  are made; a message then costs one call per node.
- An expression runs on every record of a topic, so the most common comparison, a property on the
  left of a literal, has closures of its own.
"""

from __future__ import annotations

import operator as python_operator
from collections.abc import Callable, Mapping
from typing import Any

from rocketray.errors import FilterEvaluationError

from .coercion import Comparator, comparator, compare_doubles, converter, number_comparator
from .like import compile_like
from .nodes import (
    And,
    BooleanCast,
    Compare,
    Expression,
    In,
    IsNull,
    Kind,
    Like,
    Literal,
    Match,
    Negate,
    Not,
    Operator,
    Or,
    Property,
    Value,
    as_literal,
    kind_of,
)
from .printer import shown, to_sql
from .text_match import text_test

__all__ = ["Evaluator", "Properties", "compile_tree"]

Properties = Mapping[str, str]
Evaluator = Callable[[Properties], bool | None]
"""Takes a message's properties; raises :class:`FilterEvaluationError`."""

_Operand = Callable[[Properties], Value]
_TESTS: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: python_operator.eq,
    Operator.NE: python_operator.ne,
    Operator.LT: python_operator.lt,
    Operator.LE: python_operator.le,
    Operator.GT: python_operator.gt,
    Operator.GE: python_operator.ge,
}
_EQUALITIES = (Operator.EQ, Operator.NE)
_INTEGERS = (Kind.INT32, Kind.INT64)


def compile_tree(node: Expression) -> Evaluator:
    """Return the closure that evaluates *node*, which must be a truth value."""
    return _COMPILERS[type(node)](node)


# -- logic ------------------------------------------------------------------------------------


def _and(node: And) -> Evaluator:
    operands = tuple([compile_tree(each) for each in node.operands])

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = True
        for operand in operands:
            value = operand(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return evaluate


def _or(node: Or) -> Evaluator:
    operands = tuple([compile_tree(each) for each in node.operands])

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = False
        for operand in operands:
            value = operand(properties)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return evaluate


def _not(node: Not) -> Evaluator:
    operand = compile_tree(node.operand)

    def evaluate(properties: Properties) -> bool | None:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def _cast(node: BooleanCast) -> Evaluator:
    # A property is a text, and only a real truth value is ever true.
    name = node.operand.name
    return lambda properties: None if properties.get(name) is None else False


def _constant(node: Literal) -> Evaluator:
    assert node.kind in (Kind.BOOLEAN, Kind.NULL), "the parser let a value stand for a condition"
    value = None if node.value is None else bool(node.value)
    return lambda _: value


# -- comparisons ------------------------------------------------------------------------------


def _compare(node: Compare) -> Evaluator:
    if isinstance(node.left, Property) and isinstance(node.right, Literal):
        return _compare_with_literal(node, node.left.name, node.right)
    return _equality(node) if node.operator in _EQUALITIES else _ordering(node)


def _equality(node: Compare) -> Evaluator:
    """Return ``=`` or ``<>``: an absent left side is unknown, an absent right side is unequal."""
    left, right = _operand(node.left), _operand(node.right)
    test, where = _present_test(node), shown(to_sql(node))
    when_both_absent = node.operator is Operator.EQ

    def evaluate(properties: Properties) -> bool | None:
        left_value, right_value = left(properties), right(properties)
        if left_value is None:
            return when_both_absent if right_value is None else None
        if right_value is None:
            return not when_both_absent
        try:
            return test(left_value, right_value)
        except FilterEvaluationError as error:
            raise _located(where, error) from None

    return evaluate


def _ordering(node: Compare) -> Evaluator:
    """Return ``<`` or similar: unknown if a side is absent; the right is read after the left."""
    left, right = _operand(node.left), _operand(node.right)
    test, where = _present_test(node), shown(to_sql(node))

    def evaluate(properties: Properties) -> bool | None:
        left_value = left(properties)
        if left_value is None:
            return None
        right_value = right(properties)
        if right_value is None:
            return None
        try:
            return test(left_value, right_value)
        except FilterEvaluationError as error:
            raise _located(where, error) from None

    return evaluate


def _present_test(node: Compare) -> Callable[[Any, Any], bool]:
    """Return the comparison of two values that are not absent."""
    test = _TESTS[node.operator]
    left, right = kind_of(node.left), kind_of(node.right)
    if left is right is Kind.STRING and node.operator in _EQUALITIES:
        return test
    compare = comparator(left, right, numeric=node.numeric)
    return lambda left_value, right_value: test(compare(left_value, right_value), 0)


def _compare_with_literal(node: Compare, name: str, literal: Literal) -> Evaluator:
    test, where = _TESTS[node.operator], shown(to_sql(node))
    constant: Any = literal.value
    if literal.kind is Kind.STRING:
        return _compare_text(name, test, constant)
    if node.numeric and literal.kind in _INTEGERS:
        return _compare_as_numbers(name, test, number_comparator(literal.kind), constant, where)
    convert = converter(literal.kind)

    def compare_exactly(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        try:
            return test(convert(text), constant)
        except FilterEvaluationError as error:
            raise _located(where, error) from None

    def compare_as_doubles(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        try:
            return test(compare_doubles(convert(text), constant), 0)
        except FilterEvaluationError as error:
            raise _located(where, error) from None

    return compare_as_doubles if literal.kind is Kind.DOUBLE else compare_exactly


def _compare_as_numbers(
    name: str,
    test: Callable[[Any, Any], bool],
    compare: Comparator,
    constant: int,
    where: str,
) -> Evaluator:
    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        try:
            return test(compare(text, constant), 0)
        except FilterEvaluationError as error:
            raise _located(where, error) from None

    return evaluate


def _compare_text(name: str, test: Callable[[Any, Any], bool], constant: Value) -> Evaluator:
    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else test(text, constant)

    return evaluate


def _located(where: str, error: FilterEvaluationError) -> FilterEvaluationError:
    return FilterEvaluationError(f"{where}: {error}", error.kind)


# -- the other tests --------------------------------------------------------------------------


def _is_null(node: IsNull) -> Evaluator:
    operand, negated = _operand(node.operand), node.negated
    return lambda properties: (operand(properties) is None) is not negated


def _in(node: In) -> Evaluator:
    name, items, negated = node.operand.name, frozenset(node.items), node.negated

    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else (text in items) is not negated

    return evaluate


def _match(node: Match) -> Evaluator:
    """Return CONTAINS or similar: false for anything but a text, also when negated."""
    if not node.text:
        return lambda _: False
    operand, test, negated = _operand(node.operand), text_test(node), node.negated

    def evaluate(properties: Properties) -> bool | None:
        value = operand(properties)
        return isinstance(value, str) and test(value) is not negated

    return evaluate


def _like(node: Like) -> Evaluator:
    name, negated = node.operand.name, node.negated
    matches = compile_like(node.pattern, node.escape).matches

    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else matches(text) is not negated

    return evaluate


# -- operands ---------------------------------------------------------------------------------


def _operand(node: Expression) -> _Operand:
    match node:
        case Property(name):
            return lambda properties: properties.get(name)
        case Literal(_, value):
            return lambda _: value
        case Negate():
            return _negate(node)
        case _:
            return compile_tree(node)


def _negate(node: Negate) -> _Operand:
    if literal := as_literal(node):
        number = literal.value
        return lambda _: number
    operand = _operand(node.operand)

    def evaluate(properties: Properties) -> Value:
        operand(properties)  # evaluated for its error; a text or truth value has no negative
        return None

    return evaluate


_COMPILERS: dict[type, Callable[[Any], Evaluator]] = {
    And: _and,
    Or: _or,
    Not: _not,
    BooleanCast: _cast,
    Literal: _constant,
    Compare: _compare,
    IsNull: _is_null,
    In: _in,
    Match: _match,
    Like: _like,
}
