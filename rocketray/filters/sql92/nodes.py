"""The syntax tree of an SQL92 expression: frozen, hashable, with all that an evaluator needs.

Invariants, kept by the parser
  1. A tree is canonical: ``And`` and ``Or`` are flat (no operand of an ``And`` is an ``And``),
     unary plus and parentheses leave no nodes, and BETWEEN is two comparisons, as in
     RocketMQ. So ``parse(to_sql(tree)) == tree``.
  2. Every operand's kind is known before a message is seen: a property is text or absent, a
     literal has a kind, everything else is true, false or unknown (see :func:`kind_of`).
  3. A property used as a truth value is wrapped in a ``BooleanCast``; the root and the operands
     of AND, OR and NOT always are truth values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from .operators import Operator, TextOperator

Value = str | int | float | bool | None
"""The value of an operand: text, an integer, a double, a truth value, or absent (null)."""


class Kind(Enum):
    """The Java type of a value; INT32, INT64 and DOUBLE convert texts differently."""

    STRING = "string"
    INT32 = "32-bit integer"
    INT64 = "64-bit integer"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    NULL = "null"

    @property
    def is_number(self) -> bool:
        return self in (Kind.INT32, Kind.INT64, Kind.DOUBLE)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Its kind is part of it: in Python ``1 == 1.0 == True``, here they differ."""

    kind: Kind
    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """A message property, by its case-sensitive name."""

    name: str


@dataclass(frozen=True, slots=True)
class Negate:
    """``- operand``: the negative of a number, null for anything else."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT operand``."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class BooleanCast:
    """A property used as a truth value: unknown when absent, else false, because it is a text."""

    operand: Property


@dataclass(frozen=True, slots=True)
class And:
    """``a AND b AND …``: two operands or more, none of them an ``And``."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """``a OR b OR …``: two operands or more, none of them an ``Or``."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """``left operator right``.

    If ``numeric``, a text beside an integer is compared by its value, whatever its form (see
    coercion.py). The flag comes from the dialect, not from the text of the expression.
    """

    operator: Operator
    left: Expression
    right: Expression
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class IsNull:
    """``operand IS [NOT] NULL``."""

    operand: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class TextTest:
    """``operand [NOT] operator constants``, the constants in the order they were written."""

    operator: TextOperator
    operand: Expression
    constants: tuple[str, ...]
    negated: bool

    @property
    def is_never_true(self) -> bool:
        """Whether the operator is false with these constants, whatever the operand."""
        return self.operator.never_empty and "" in self.constants


Expression = (
    Literal | Property | Negate | Not | BooleanCast | And | Or | Compare | IsNull | TextTest
)

_LEAVES = (Literal, Property)
_JOINED = (And, Or)
_R = TypeVar("_R")


def children(node: Expression) -> tuple[Expression, ...]:
    """Return the direct operands of *node*, left to right."""
    if isinstance(node, _LEAVES):
        return ()
    if isinstance(node, Compare):
        return node.left, node.right
    if isinstance(node, _JOINED):
        return node.operands
    return (node.operand,)


def as_literal(node: Expression) -> Literal | None:
    """Return the literal that *node* is, with minus signs applied; None for any other node."""
    if isinstance(node, Literal):
        return node
    if isinstance(node, Negate):
        literal = as_literal(node.operand)
        if literal is not None and isinstance(literal.value, int | float):
            return Literal(literal.kind, -literal.value) if literal.kind.is_number else None
    return None


def is_boolean(node: Expression) -> bool:
    """Return whether *node* is a truth value without a cast; a NULL literal counts as one."""
    return kind_of(node) in (Kind.BOOLEAN, Kind.NULL) and not isinstance(node, Negate)


def kind_of(node: Expression) -> Kind:
    """Return the kind of the values of *node*; each may be absent as well."""
    match node:
        case Literal(kind, _):
            return kind
        case Property():
            return Kind.STRING
        case Negate(operand):
            kind = kind_of(operand)
            return kind if kind.is_number else Kind.NULL
        case _:
            return Kind.BOOLEAN


def property_names(node: Expression) -> frozenset[str]:
    return frozenset(each.name for each in walk(node) if isinstance(each, Property))


def walk(root: Expression) -> Iterator[Expression]:
    """Yield *root* and all nodes below it, from left to right."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def fold(node: Expression, cases: Mapping[type, Callable[..., _R]]) -> _R:
    """Return the result of the case for the type of *node*.

    It takes the node and, behind it, the results of its operands, from left to right.
    """
    return cases[type(node)](node, *[fold(each, cases) for each in children(node)])
