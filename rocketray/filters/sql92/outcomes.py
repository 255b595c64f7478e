"""The possible outcomes of a condition over all messages: true, false, unknown or an error.

The result may contain an impossible outcome, and never misses a possible one, so "true is not among
them" is a fact. A condition over one property is tried with a value from each region into which its
literals divide the values; larger conditions are combined from their parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from enum import Enum
from fractions import Fraction
from functools import reduce
from itertools import pairwise

from rocketray.errors import FilterEvaluationError

from . import nodes
from .evaluator import Evaluator, Properties, compile_tree
from .nodes import Expression, Kind, property_names, walk
from .operators import IN

_LITERALS_MAX = 64  # with more literals, regions are not tried: the result is "anything"
# Where a number stops fitting into an int32 or int64, and the two zeros.
_EDGES = (0, -0.0, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63))
_BEYOND = Fraction(2) ** 1024  # the double that would follow the largest one
# What conversions treat specially, and a text that is none of it.
_TEXTS = ("", "text", "true", "FALSE", "NaN", "Infinity", "-Infinity", " 5 ")


class Outcome(Enum):
    """The outcome of evaluating a condition, or that AND or OR does not need it."""

    TRUE = "true"
    FALSE = "false"
    NULL = "null"
    ERROR = "error"
    SKIPPED = "skipped"


Outcomes = frozenset[Outcome]
_ALL = frozenset(Outcome) - {Outcome.SKIPPED}
_TWO = frozenset({Outcome.TRUE, Outcome.FALSE})
_NEGATED = {Outcome.TRUE: Outcome.FALSE, Outcome.FALSE: Outcome.TRUE}
_BY_VALUE = {True: Outcome.TRUE, False: Outcome.FALSE, None: Outcome.NULL}


def outcomes(node: Expression) -> Outcomes:
    names = property_names(node)
    if len(names) <= 1 and all(each.operator is IN for each in _text_tests(node)):
        found = _tried(node, names)
        if found is not None:
            return found
    return _composed(node)


def outcome_of(evaluate: Evaluator, properties: Properties) -> tuple[Outcome, str | None]:
    """Return the outcome on a message, and the reason if it is an error."""
    try:
        return _BY_VALUE[evaluate(properties)], None
    except FilterEvaluationError as error:
        return Outcome.ERROR, str(error)


def conflicting(node: nodes.And) -> nodes.And | None:
    """Return operands of *node* about one property that cannot all be true, or None."""
    for name in sorted(property_names(node)):
        about = tuple(each for each in node.operands if property_names(each) == {name})
        if len(about) > 1 and Outcome.TRUE not in outcomes(nodes.And(about)):
            return nodes.And(about)
    return None


def _text_tests(node: Expression) -> Iterator[nodes.TextTest]:
    return (each for each in walk(node) if isinstance(each, nodes.TextTest))


def _composed(node: Expression) -> Outcomes:
    match node:
        case nodes.And(operands):
            found = _all_of(map(outcomes, operands))
            # Operands about the same property may exclude each other; an And of one property alone
            # was tried with values before.
            pairs = len({*map(property_names, operands)}) < len(operands)
            contradicts = pairs and len(property_names(node)) > 1 and conflicting(node) is not None
            return found - {Outcome.TRUE} if contradicts else found
        # De Morgan, which holds for unknown and errors, too: a OR b is NOT (NOT a AND NOT b).
        case nodes.Or(operands):
            return frozenset(map(_negated, _all_of(map(_all_negated, operands))))
        case nodes.Not(operand):
            return _all_negated(operand)
        case nodes.IsNull() | nodes.TextTest():
            compares = any(isinstance(each, nodes.Compare) for each in walk(node))
            found = _TWO | {Outcome.ERROR} if compares else _TWO
            is_unknown = isinstance(node, nodes.TextTest) and node.operator.absent is None
            return found | {Outcome.NULL} if is_unknown else found
        case _:
            return _ALL


def _all_negated(node: Expression) -> Outcomes:
    return frozenset(map(_negated, outcomes(node)))


def _negated(outcome: Outcome) -> Outcome:
    return _NEGATED.get(outcome, outcome)


def _all_of(operands: Iterable[Outcomes]) -> Outcomes:
    return reduce(_both, operands, frozenset({Outcome.TRUE}))


def _both(left: Outcomes, right: Outcomes) -> Outcomes:
    """Combine by AND, left to right: a false left operand hides the right one, an error too."""
    found: set[Outcome] = set()
    for one in left:
        if one in (Outcome.FALSE, Outcome.ERROR):
            found.add(one)
        elif one is Outcome.TRUE:
            found |= right
        else:
            # Unknown and true is unknown; false and an error win over unknown.
            found |= {Outcome.NULL if each is Outcome.TRUE else each for each in right}
    return frozenset(found)


# -- trying values ----------------------------------------------------------------------------


def _tried(node: Expression, names: frozenset[str]) -> Outcomes | None:
    """Return the outcomes over all values of the one property in *node*; None: too many to try."""
    literals = [each for each in walk(node) if isinstance(each, nodes.Literal)]
    items = [item for each in _text_tests(node) for item in each.constants]
    if len(literals) + len(items) > _LITERALS_MAX:
        return None
    evaluate = compile_tree(node)
    if not names:
        return frozenset({outcome_of(evaluate, {})[0]})
    (name,) = names
    numbers = [value for each in literals if (value := _number(each)) is not None]
    texts = {*items, *(str(each.value) for each in literals if each.kind is Kind.STRING)}
    values = {*texts, *_TEXTS, *_spelled(_regions(numbers), texts)}
    if any(isinstance(each, nodes.Compare) and each.numeric for each in walk(node)):
        values |= set(_exactly(numbers))
    messages: list[dict[str, str]] = [{}, *({name: value} for value in values)]
    return frozenset(outcome_of(evaluate, message)[0] for message in messages)


def _number(literal: nodes.Literal) -> int | float | None:
    value = literal.value
    return value if literal.kind.is_number and isinstance(value, int | float) else None


def _regions(literals: Iterable[int | float]) -> set[int | float]:
    """Return a number from each region, and the edges, that *literals* and their negatives make."""
    edges = sorted({*literals, *(-value for value in literals), *_EDGES})
    # Beyond all literals but those close to the largest double, 1.8e308, whose neighbours are
    # tried.
    found: set[int | float] = {-1.5e308, 1.5e308}
    for value in edges:
        found |= {value, value - 1, value + 1}
        found |= {math.nextafter(value, math.inf), math.nextafter(value, -math.inf)}
    for low, high in pairwise(edges):
        found |= {low / 2 + high / 2, math.floor(low) + 1}
    return {number for number in found if math.isfinite(number)}


def _exactly(literals: Iterable[int | float]) -> Iterator[str]:
    """Yield texts of numbers from each region that *literals* make where numbers are exact.

    An integer divides them at its value; a double, beside which a text is rounded, halfway to each
    of its neighbours.
    """
    cuts = {Fraction(0)}
    for literal in {*literals, *(-value for value in literals)}:
        if isinstance(literal, int):
            cuts.add(Fraction(literal))
        else:
            for side in (math.inf, -math.inf):
                beside = math.nextafter(literal, side)
                far = (
                    Fraction(beside) if math.isfinite(beside) else _BEYOND * (1 if side > 0 else -1)
                )
                cuts.add((Fraction(literal) + far) / 2)
    places = sorted(cuts)
    between = [(low + high) / 2 for low, high in pairwise(places)]
    for number in (places[0] - 1, *places, *between, places[-1] + 1):
        power = number.denominator.bit_length() - 1  # the denominator is a power of two
        yield f"{number.numerator * 5**power}e-{power}"


def _spelled(numbers: Iterable[int | float], taken: set[str]) -> Iterator[str]:
    """Yield each number as texts, one of them not in *taken*: 5 is also 05, and not equal to it."""
    for number in numbers:
        text = repr(number)
        yield text
        sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
        while text in taken:
            digits = f"0{digits}"
            text = f"{sign}{digits}"
        yield text
