"""A syntax tree as text, with only the parentheses it needs: ``parse(to_sql(tree)) == tree``.

A tree with extensions needs the extended dialect to be parsed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .lexer import TokenKind, tokenize
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
)

__all__ = ["shown", "to_sql"]

_SHOWN_CHARS = 60
# The binding strength of nodes, loosest first, as in the grammar.
_OR, _AND, _EQUALITY, _COMPARISON, _UNARY, _PRIMARY = range(6)
_ORDERING = (Operator.LT, Operator.LE, Operator.GT, Operator.GE)


def to_sql(node: Expression) -> str:
    """Return the expression that parses to *node*."""
    return _print(node)[0]


def shown(text: str) -> str:
    """Return *text* for an error message: shortened, without terminal control characters."""
    short = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    return short if short.isprintable() else repr(short)[1:-1]


def _print(node: Expression) -> tuple[str, int]:
    """Return the text of *node* and its binding strength."""
    return _PRINTERS[type(node)](node)


def _print_or(node: Or) -> tuple[str, int]:
    return " OR ".join([_within(each, _AND) for each in node.operands]), _OR


def _print_and(node: And) -> tuple[str, int]:
    return " AND ".join([_within(each, _EQUALITY) for each in node.operands]), _AND


def _print_is_null(node: IsNull) -> tuple[str, int]:
    return f"{_within(node.operand, _EQUALITY)} IS {_not(node)}NULL", _EQUALITY


def _print_in(node: In) -> tuple[str, int]:
    items = ", ".join(map(_quote, node.items))
    return f"{_name(node.operand)} {_not(node)}IN ({items})", _COMPARISON


def _print_match(node: Match) -> tuple[str, int]:
    left = _within(node.operand, _COMPARISON)
    return f"{left} {_not(node)}{node.operator.value} {_quote(node.text)}", _COMPARISON


def _print_not(node: Not) -> tuple[str, int]:
    return f"NOT {_within(node.operand, _UNARY)}", _UNARY


def _print_negate(node: Negate) -> tuple[str, int]:
    text = _within(node.operand, _UNARY)
    # Two minus signs in a row could start a comment.
    return (f"- {text}" if text.startswith("-") else f"-{text}"), _UNARY


def _print_cast(node: BooleanCast) -> tuple[str, int]:
    return _name(node.operand), _PRIMARY


def _print_property(node: Property) -> tuple[str, int]:
    return _name(node), _PRIMARY


def _print_like(node: Like) -> tuple[str, int]:
    escape = "" if node.escape is None else f" ESCAPE {_quote(node.escape)}"
    text = f"{_name(node.operand)} {_not(node)}LIKE {_quote(node.pattern)}{escape}"
    return text, _COMPARISON


def _print_compare(node: Compare) -> tuple[str, int]:
    binding = _COMPARISON if node.operator in _ORDERING else _EQUALITY
    left, right = _within(node.left, binding), _within(node.right, binding + 1)
    return f"{left} {node.operator.value} {right}", binding


def _within(node: Expression, binding: int) -> str:
    """Return the text of *node*, in parentheses if it binds looser than *binding*."""
    text, own = _print(node)
    return text if own >= binding else f"({text})"


def _print_literal(node: Literal) -> tuple[str, int]:
    if node.kind is Kind.STRING:
        return _quote(str(node.value)), _PRIMARY
    if node.kind in (Kind.BOOLEAN, Kind.NULL):
        return ("NULL" if node.value is None else str(node.value).upper()), _PRIMARY
    return repr(node.value), _PRIMARY


def _name(node: Property) -> str:
    """Return the property's name, in double quotes if it could be read as something else."""
    first = next(tokenize(node.name))
    is_plain = first.kind is TokenKind.IDENTIFIER and first.text == node.name
    return node.name if is_plain else f'"{node.name}"'


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _not(node: IsNull | In | Match | Like) -> str:
    return "NOT " if node.negated else ""


_PRINTERS: dict[type, Callable[[Any], tuple[str, int]]] = {
    Or: _print_or,
    And: _print_and,
    IsNull: _print_is_null,
    Compare: _print_compare,
    In: _print_in,
    Match: _print_match,
    Like: _print_like,
    Not: _print_not,
    Negate: _print_negate,
    BooleanCast: _print_cast,
    Property: _print_property,
    Literal: _print_literal,
}
