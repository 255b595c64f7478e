"""What the dialect "rocketray" has to answer, worked out another way.

Comparisons are RocketMQ's, by the evaluator of its dialect, which its own Java answers judge. Where
that one fails on a text beside an integer, the text decides: a number is compared as a fraction, or
as a decimal where its exponent is too large for one. AND, OR, NOT and what contains conditions are
written here once more, by their definitions.
"""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from rocketray.errors import FilterEvaluationError
from rocketray.filters.sql92.compiled import CompiledExpression
from rocketray.filters.sql92.nodes import (
    And,
    Compare,
    Expression,
    IsNull,
    Kind,
    Literal,
    Negate,
    Not,
    Or,
    Property,
    TextTest,
    as_literal,
)
from rocketray.filters.sql92.operators import Operator

Answer = bool | str | None
_FORM = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE](?P<exponent>[+-]?\d+))?", re.ASCII)
_FRACTION_EXPONENT_MAX = 2000
_DECIMAL_EXPONENT_DIGITS = 17
_TESTS = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
}
_ORDERINGS = (Operator.LT, Operator.LE, Operator.GT, Operator.GE)


def of_rocketmq(tree: Expression, message: Mapping[str, str]) -> Answer:
    """The answer of a tree of RocketMQ's rules; "error" where it fails."""
    try:
        return CompiledExpression("", tree).evaluate(message)
    except FilterEvaluationError:
        return "error"


def expected(tree: Expression, message: Mapping[str, str]) -> Answer:
    """The answer of dialect "rocketray" to *tree*, which was parsed by RocketMQ's rules."""
    match tree:
        case And(operands) | Or(operands):
            answers = (expected(operand, message) for operand in operands)
            return _joined(answers, deciding=isinstance(tree, Or))
        case Not(operand):
            found = expected(operand, message)
            return not found if isinstance(found, bool) else found
        case Compare():
            return _compared(tree, message)
        case IsNull(operand) | TextTest(_, operand) if (
            isinstance(tree, IsNull) or "" not in tree.constants
        ):
            value = _settled(operand, message)
            return "error" if value is None else of_rocketmq(replace(tree, operand=value), message)
        case _:
            return of_rocketmq(tree, message)


def _joined(answers: Iterable[Answer], *, deciding: bool) -> Answer:
    result: Answer = not deciding
    for found in answers:
        if found is deciding or found == "error":
            return found
        result = None if found is None else result
    return result


def order_of(text: str, integer: int) -> int | None:
    """-1, 0 or 1 for a number beside *integer*; None for a text that is none."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    exponent = (match["exponent"] or "0").lstrip("+-0") or "0"
    if len(exponent) <= 4 and int(exponent) <= _FRACTION_EXPONENT_MAX:
        mantissa = re.split("[eE]", text)[0]
        power = int(match["exponent"] or 0)
        value: Fraction | Decimal = Fraction(_with_digits(mantissa)) * Fraction(10) ** power
        return (value > integer) - (value < integer)
    assert len(exponent) <= _DECIMAL_EXPONENT_DIGITS, "no decimal takes it"
    value = Decimal(text)
    return (value > integer) - (value < integer)


def random_number(generator: random.Random) -> str:
    """A number in one of its forms, often close to a whole one, or nearly a number."""
    digits = str(
        generator.choice(
            (
                generator.randrange(130),
                generator.randrange(130),
                *(2**31 - 1, 2**31, 9007199254740992, 9007199254740993, 2**63 - 1, 2**63),
                generator.randrange(10 ** generator.choice((3, 20, 60))),
            )
        )
    )
    if generator.random() < 0.02:
        digits += "0" * 400
    zeros = "0" * generator.choice((0, 0, 0, 1, 3))
    shift = generator.choice((0, 0, 0, 0, 1, 2, -1, -2, -30, 400, 10**6, 10**17 - 1))
    where = generator.randrange(len(digits) + 1)
    fraction = generator.choice(("", "", ".", ".0", ".00", ".5", ".0000000000000000000000001"))
    text = zeros + digits + fraction
    if shift and abs(shift) <= 400:  # the point elsewhere, and an exponent that makes up for it
        text = f"{zeros}{digits[:where]}.{digits[where:]}0E{'+' * generator.randrange(2)}"
        text += str(len(digits) - where + generator.choice((0, 0, shift)))
    elif shift:
        text += f"e{generator.choice(('', '-', '+', '-000'))}{shift}"
    sign = generator.choice(("", "", "", "-", "+"))
    spoilt = (
        generator.choice((" ", "d", "e", "x", ".", "_", "５")) if generator.random() < 0.05 else ""
    )
    return sign + text + spoilt


def _compared(tree: Compare, message: Mapping[str, str]) -> Answer:
    left = _settled(tree.left, message)
    if left is not None and tree.operator in _ORDERINGS and _value(left, message) is None:
        return None  # the right side is not looked at
    right = None if left is None else _settled(tree.right, message)
    if left is None or right is None:
        return "error"
    if None in (_value(left, message), _value(right, message)):
        return _beside_null(tree.operator, _value(left, message), _value(right, message))
    found = of_rocketmq(Compare(tree.operator, left, right), message)
    return _as_numbers(tree.operator, left, right, message) if found == "error" else found


def _beside_null(operator: Operator, left: object, right: object) -> Answer:
    if operator in _ORDERINGS or (left is None and right is not None):
        return None
    return (operator is Operator.EQ) is (left is right)


def _as_numbers(
    operator: Operator, left: Expression, right: Expression, message: Mapping[str, str]
) -> Answer:
    mirrored = _integer(left) is not None
    text_side, number_side = (right, left) if mirrored else (left, right)
    text, number = _value(text_side, message), _integer(number_side)
    order = order_of(text, number) if isinstance(text, str) and number is not None else None
    if order is None:
        return "error"
    return bool(_TESTS[operator](-order if mirrored else order, 0))


def _settled(node: Expression, message: Mapping[str, str]) -> Expression | None:
    """An operand without conditions in it; None where working it out fails."""
    if isinstance(node, Property | Literal) or as_literal(node) is not None:
        return node
    if isinstance(node, Negate):
        return None if _settled(node.operand, message) is None else Literal(Kind.NULL, None)
    found = expected(node, message)
    return None if isinstance(found, str) else Literal(Kind.BOOLEAN, found)


def _value(node: Expression, message: Mapping[str, str]) -> object:
    literal = as_literal(node)
    if literal is not None:
        return literal.value
    return message.get(node.name) if isinstance(node, Property) else None


def _integer(node: Expression) -> int | None:
    literal = as_literal(node)
    if literal is None or literal.kind not in (Kind.INT32, Kind.INT64):
        return None
    assert isinstance(literal.value, int)
    return literal.value


def _with_digits(mantissa: str) -> str:
    """*mantissa* as :class:`Fraction` takes it: with a digit on both sides of its point."""
    whole, point, fraction = mantissa.partition(".")
    whole = whole if whole[-1:].isdigit() else f"{whole}0"
    return f"{whole}{point}{fraction or '0'}" if point else whole
