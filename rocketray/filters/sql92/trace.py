"""The evaluation of an expression on one message: every part of it, in the order of evaluation.

It explains why a message was not delivered. Each truth value of the tree becomes a step, the whole
expression first, its operands below it. A part that AND or OR did not need is marked as skipped,
and so is everything behind an error: exactly the parts that the scalar evaluator does not evaluate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .evaluator import Properties, compile_tree
from .nodes import And, Expression, Not, Or, children, is_boolean, property_names
from .outcomes import Outcome, outcome_of
from .printer import shown, to_sql


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One part: ``depth`` 0 is the whole, ``error`` the reason where the outcome is an error.

    ``values`` are the properties that the part names, None where the message has none.
    """

    depth: int
    expression: str
    outcome: Outcome
    values: dict[str, str | None]
    error: str | None = None


def trace(tree: Expression, properties: Properties) -> list[TraceStep]:
    """Return the steps of evaluating *tree*, the whole first; texts are shortened and printable."""
    return list(_steps(tree, properties, 0))


def _steps(node: Expression, properties: Properties, depth: int) -> Iterator[TraceStep]:
    outcome, error = outcome_of(compile_tree(node), properties)
    yield _step(node, properties, depth, outcome, error)
    decided = False
    for operand in children(node):
        if not _is_part(node, operand):
            continue
        if decided:
            yield from _skipped(operand, properties, depth + 1)
            continue
        yield from _steps(operand, properties, depth + 1)
        decided = _decides(node, outcome_of(compile_tree(operand), properties)[0])


def _skipped(node: Expression, properties: Properties, depth: int) -> Iterator[TraceStep]:
    yield _step(node, properties, depth, Outcome.SKIPPED, None)
    for operand in children(node):
        if _is_part(node, operand):
            yield from _skipped(operand, properties, depth + 1)


def _decides(node: Expression, outcome: Outcome) -> bool:
    """Return whether the operands behind one with this *outcome* are skipped."""
    if outcome is Outcome.ERROR:
        return True
    return (isinstance(node, And) and outcome is Outcome.FALSE) or (
        isinstance(node, Or) and outcome is Outcome.TRUE
    )


def _is_part(node: Expression, operand: Expression) -> bool:
    """Return whether *operand* is a truth value with a step of its own: no property, no literal."""
    if isinstance(node, And | Or | Not):
        return True
    return is_boolean(operand) and bool(children(operand))


def _step(
    node: Expression, properties: Properties, depth: int, outcome: Outcome, error: str | None
) -> TraceStep:
    values = {name: properties.get(name) for name in sorted(property_names(node))}
    short = {name: None if text is None else shown(text) for name, text in values.items()}
    return TraceStep(depth, to_sql(node), outcome, short, error)
