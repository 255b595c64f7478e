"""A syntax tree as text, with only the parentheses it needs: ``parse(to_sql(tree)) == tree``.

A tree with extensions needs the extended dialect to be parsed again.
"""

from __future__ import annotations

from collections.abc import Callable

from . import nodes
from .lexer import TokenKind, tokenize
from .nodes import Expression, Kind, fold
from .operators import Form

_SHOWN_CHARS = 60  # of an expression or a value, in a sentence
# The binding strength of nodes, loosest first, as in the grammar.
_OR, _AND, _EQUALITY, _COMPARISON, _UNARY, _PRIMARY = range(6)
_Printed = tuple[str, int]
"""The text of a node and its binding strength."""


def to_sql(node: Expression) -> str:
    """Return the expression that parses to *node*."""
    return fold(node, _PRINTERS)[0]


def shown(text: str) -> str:
    """Return *text* for an error message: shortened, without terminal control characters."""
    short = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    return short if short.isprintable() else repr(short)[1:-1]


def _or(_node: nodes.Or, *operands: _Printed) -> _Printed:
    return " OR ".join([_within(each, _AND) for each in operands]), _OR


def _and(_node: nodes.And, *operands: _Printed) -> _Printed:
    return " AND ".join([_within(each, _EQUALITY) for each in operands]), _AND


def _is_null(node: nodes.IsNull, operand: _Printed) -> _Printed:
    return f"{_within(operand, _EQUALITY)} IS {_negation(node)}NULL", _EQUALITY


def _compare(node: nodes.Compare, left: _Printed, right: _Printed) -> _Printed:
    binding = _EQUALITY if node.operator.is_equality else _COMPARISON
    return f"{_within(left, binding)} {node.operator.sign} {_within(right, binding + 1)}", binding


def _text_test(node: nodes.TextTest, operand: _Printed) -> _Printed:
    operator, texts = node.operator, [*map(_quote, node.constants)]
    constants = f"({', '.join(texts)})" if operator.form is Form.TEXTS else " ESCAPE ".join(texts)
    left = _within(operand, _COMPARISON)
    return f"{left} {_negation(node)}{operator.word} {constants}", _COMPARISON


def _not(_node: nodes.Not, operand: _Printed) -> _Printed:
    return f"NOT {_within(operand, _UNARY)}", _UNARY


def _negate(_node: nodes.Negate, operand: _Printed) -> _Printed:
    text = _within(operand, _UNARY)
    # Two minus signs in a row could start a comment.
    return (f"- {text}" if text.startswith("-") else f"-{text}"), _UNARY


def _cast(_node: nodes.BooleanCast, operand: _Printed) -> _Printed:
    return operand


def _property(node: nodes.Property) -> _Printed:
    """Return the property's name, in double quotes if it could be read as something else."""
    first = next(tokenize(node.name))
    is_plain = first.kind is TokenKind.IDENTIFIER and first.text == node.name
    return node.name if is_plain else f'"{node.name}"', _PRIMARY


def _literal(node: nodes.Literal) -> _Printed:
    if node.kind is Kind.STRING:
        return _quote(str(node.value)), _PRIMARY
    if node.kind in (Kind.BOOLEAN, Kind.NULL):
        return ("NULL" if node.value is None else str(node.value).upper()), _PRIMARY
    return repr(node.value), _PRIMARY


def _within(printed: _Printed, binding: int) -> str:
    """Return a text, in parentheses if it binds looser than *binding*."""
    text, own = printed
    return text if own >= binding else f"({text})"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _negation(node: nodes.IsNull | nodes.TextTest) -> str:
    return "NOT " if node.negated else ""


_PRINTERS: dict[type, Callable[..., _Printed]] = {
    nodes.Or: _or,
    nodes.And: _and,
    nodes.IsNull: _is_null,
    nodes.Compare: _compare,
    nodes.TextTest: _text_test,
    nodes.Not: _not,
    nodes.Negate: _negate,
    nodes.BooleanCast: _cast,
    nodes.Property: _property,
    nodes.Literal: _literal,
}
