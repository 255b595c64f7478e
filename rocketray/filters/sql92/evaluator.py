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

from collections.abc import Callable, Mapping
from typing import Any

from rocketray.errors import FilterEvaluationError

from . import nodes
from .coercion import comparator, converter
from .nodes import Expression, Kind, Value, as_literal, fold, kind_of
from .operators import Operator
from .printer import shown, to_sql

Properties = Mapping[str, str]
Evaluator = Callable[[Properties], bool | None]
"""Takes a message's properties; raises :class:`FilterEvaluationError`."""

_Operand = Callable[[Properties], Any]
"""The closure of a part of an expression: takes the properties, returns a :data:`Value`."""


def compile_tree(node: Expression) -> Evaluator:
    """Return the closure that evaluates *node*, which must be a truth value."""
    return fold(node, _CASES)


# -- logic ------------------------------------------------------------------------------------


def _junction(node: nodes.And | nodes.Or, *operands: _Operand) -> Evaluator:
    decisive = isinstance(node, nodes.Or)  # one operand with that value decides

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = not decisive
        for operand in operands:
            value: bool | None = operand(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return evaluate


def _not(_node: nodes.Not, operand: _Operand) -> Evaluator:
    def evaluate(properties: Properties) -> bool | None:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def _cast(node: nodes.BooleanCast, _operand: _Operand) -> Evaluator:
    # A property is a text, and only a real truth value is ever true.
    name = node.operand.name
    return lambda properties: None if properties.get(name) is None else False


# -- comparisons ------------------------------------------------------------------------------


def _compare(node: nodes.Compare, left: _Operand, right: _Operand) -> Evaluator:
    if isinstance(node.left, nodes.Property) and isinstance(node.right, nodes.Literal):
        return _compare_with_literal(node, node.left.name, node.right)
    return (_equality if node.operator.is_equality else _ordering)(node, left, right)


def _equality(node: nodes.Compare, left: _Operand, right: _Operand) -> Evaluator:
    """Return ``=`` or ``<>``: an absent left side is unknown, an absent right side is unequal."""
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


def _ordering(node: nodes.Compare, left: _Operand, right: _Operand) -> Evaluator:
    """Return ``<`` or similar: unknown if a side is absent; the right is read after the left."""
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


def _present_test(node: nodes.Compare) -> Callable[[Any, Any], bool]:
    """Return the comparison of two values that are not absent."""
    test = node.operator.test
    left, right = kind_of(node.left), kind_of(node.right)
    if left is right is Kind.STRING and node.operator.is_equality:
        return test
    compare = comparator(left, right, numeric=node.numeric)
    return lambda left_value, right_value: test(compare(left_value, right_value), 0)


def _compare_with_literal(node: nodes.Compare, name: str, literal: nodes.Literal) -> Evaluator:
    test, where = node.operator.test, shown(to_sql(node))
    constant: Any = literal.value
    if literal.kind is Kind.STRING:
        return _compare_text(name, test, constant)
    convert, wanted = converter(literal.kind), constant
    # Doubles are ordered as by Double.compareTo, and numbers of any form by their value.
    if literal.kind is Kind.DOUBLE or (node.numeric and literal.kind.is_number):
        compare = comparator(Kind.STRING, literal.kind, numeric=node.numeric)
        convert, wanted = (lambda text: compare(text, constant)), 0

    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        try:
            return test(convert(text), wanted)
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


def _is_null(node: nodes.IsNull, operand: _Operand) -> Evaluator:
    negated = node.negated
    return lambda properties: (operand(properties) is None) is not negated


def _text_test(node: nodes.TextTest, operand: _Operand) -> Evaluator:
    if node.is_never_true:
        return lambda _: False
    matches, negated = node.operator.test(node.constants), node.negated
    absent = node.operator.absent
    if not isinstance(node.operand, nodes.Property):

        def evaluate_value(properties: Properties) -> bool | None:
            value = operand(properties)
            return matches(value) is not negated if isinstance(value, str) else absent

        return evaluate_value
    name = node.operand.name

    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        return absent if text is None else matches(text) is not negated

    return evaluate


# -- operands ---------------------------------------------------------------------------------


def _property(node: nodes.Property) -> _Operand:
    name = node.name
    return lambda properties: properties.get(name)


def _literal(node: nodes.Literal) -> _Operand:
    value = node.value
    return lambda _: value


def _negate(node: nodes.Negate, operand: _Operand) -> _Operand:
    if literal := as_literal(node):
        number = literal.value
        return lambda _: number

    def evaluate(properties: Properties) -> Value:
        operand(properties)  # evaluated for its error; a text or truth value has no negative
        return None

    return evaluate


_CASES: dict[type, Callable[..., _Operand]] = {
    nodes.And: _junction,
    nodes.Or: _junction,
    nodes.Not: _not,
    nodes.BooleanCast: _cast,
    nodes.Compare: _compare,
    nodes.IsNull: _is_null,
    nodes.TextTest: _text_test,
    nodes.Property: _property,
    nodes.Literal: _literal,
    nodes.Negate: _negate,
}
