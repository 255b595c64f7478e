"""Hypothesis strategies for SQL92: canonical trees, messages that fit them, and broken text.

Trees have what the dialect "rocketray" adds, its numeric comparisons or not; those without
parse in both dialects.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from rocketray.filters.sql92.lexer import TokenKind, tokenize
from rocketray.filters.sql92.nodes import (
    And,
    BooleanCast,
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
    children,
    is_boolean,
)
from rocketray.filters.sql92.operators import TEXT_OPERATORS, Form, Operator, TextOperator

NAMES = ("a", "b", "TAGS", "$x", "_1", "like", "a-b.c/d", "NOT")
_TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "x",
            "it's",
            "''",
            "5",
            "05",
            "+5",
            "-3",
            "5.5",
            " 5 ",
            "5d",
            "0x1p3",
            "NaN",
            "-0.0",
            "Infinity",
            "true",
            "TRUE",
            "99999999999",
            "9" * 30,
            "1e400",
            "５",
            "a\nb",
            "😀",
            "�",
            "--",
            "/*",
            "*/",
        ]
    ),
    st.text(max_size=4),
)
_PROPERTIES = st.sampled_from(NAMES).map(Property)
_STRINGS = _TEXTS.map(lambda text: Literal(Kind.STRING, text))
_INTEGERS = st.one_of(
    st.integers(0, 10), st.sampled_from([2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1])
).map(lambda value: Literal(Kind.INT32 if value < 2**31 else Kind.INT64, value))
_DOUBLES = st.one_of(
    st.sampled_from([5e-324, 0.5, 5.0, 1e16, 1.7976931348623157e308]),
    st.floats(min_value=0, exclude_min=True, allow_infinity=False),
).map(lambda value: Literal(Kind.DOUBLE, value))
_TRUTHS = st.sampled_from([Literal(Kind.BOOLEAN, value=True), Literal(Kind.BOOLEAN, value=False)])
_NULL: Literal = Literal(Kind.NULL, None)
_NUMBERS = _INTEGERS | _DOUBLES
_VALUES: st.SearchStrategy[Expression] = _PROPERTIES | _STRINGS | _NUMBERS | _TRUTHS
_PATTERNS = st.one_of(_TEXTS, st.text("x%_5😀", max_size=6))
_ORDERINGS = st.sampled_from([Operator.LT, Operator.LE, Operator.GT, Operator.GE])
_EQUALITIES = st.sampled_from([Operator.EQ, Operator.NE])


def trees() -> st.SearchStrategy[Expression]:
    """Trees as the parser makes them, by the dialect's rules of either version."""
    return st.builds(with_numeric, st.recursive(_leaves(), _wider, max_leaves=12), st.booleans())


def with_numeric(node: Expression, numeric: bool) -> Expression:
    """The tree that the same text has where comparisons are *numeric*, or where they are not."""
    match node:
        case Literal() | Property():
            return node
        case And(operands) | Or(operands):
            return type(node)(tuple(with_numeric(each, numeric) for each in operands))
        case Compare(operator, left, right):
            sides = with_numeric(left, numeric), with_numeric(right, numeric)
            return Compare(operator, *sides, numeric)
        case Negate() | Not() | IsNull() | TextTest():
            return replace(node, operand=with_numeric(node.operand, numeric))
        case _:  # a cast of a property
            return node


def rules_of(node: Expression) -> int:
    """The version of the rules by which the text of *node* parses to it."""
    nodes = [node]
    for each in nodes:
        if isinstance(each, Compare):
            return 2 if each.numeric else 1
        nodes += children(each)
    return 2


def messages() -> st.SearchStrategy[dict[str, str]]:
    """Properties of a message, some of those that the trees look at absent."""
    return st.dictionaries(st.sampled_from(NAMES), _TEXTS, max_size=len(NAMES))


def broken_texts() -> st.SearchStrategy[str]:
    """Text from the pieces of the language in any order, and plain text."""
    pieces = [kind.value for kind in TokenKind if len(list(tokenize(kind.value))) == 2]
    pieces += [*TEXT_OPERATORS, *(operator.sign for operator in Operator)]
    pieces += [
        "a",
        '"a b"',
        "ESCAPE",
        "5",
        "5L",
        "0.5",
        "'x'",
        "''",
        "'",
        "--",
        "\n",
        "/*",
        "*/",
        ".",
        "\ud800",
    ]
    sentences = st.lists(st.sampled_from(pieces), max_size=30)
    return st.one_of(sentences.map(" ".join), sentences.map("".join), st.text(max_size=60))


def _leaves() -> st.SearchStrategy[Expression]:
    ordered: st.SearchStrategy[Expression] = _PROPERTIES | _NUMBERS | _PROPERTIES.map(Negate)
    return st.one_of(
        _PROPERTIES.map(BooleanCast),
        _TRUTHS,
        st.just(_NULL),
        st.builds(Compare, _ORDERINGS, ordered, ordered),
        *(_text_tests(operator, _PROPERTIES) for operator in TEXT_OPERATORS.values()),
        _values_of(_VALUES),
    )


def _text_tests(
    operator: TextOperator, operands: st.SearchStrategy[Expression]
) -> st.SearchStrategy[Expression]:
    constants = {
        Form.TEXT: st.tuples(_TEXTS),
        Form.TEXTS: st.lists(_TEXTS, min_size=1, max_size=3).map(tuple),
        Form.PATTERN: st.tuples(_PATTERNS) | st.tuples(_PATTERNS, st.sampled_from(["x", "%"])),
    }[operator.form]
    return st.builds(TextTest, st.just(operator), operands, constants, st.booleans()).filter(
        _is_valid
    )


def _is_valid(node: TextTest) -> bool:
    try:
        node.operator.test(node.constants)
    except ValueError:
        return False
    return True


def _wider(narrower: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    truths = st.deferred(lambda: narrower)  # or its description would grow eightfold a level
    joined = st.lists(truths, min_size=2, max_size=3)
    return st.one_of(
        truths.map(Not),
        joined.map(lambda operands: And(_flat(And, operands))),
        joined.map(lambda operands: Or(_flat(Or, operands))),
        _values_of(_VALUES | truths | truths.map(_uncast).map(Negate) | _NUMBERS.map(Negate)),
    )


def _values_of(values: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """What can be asked of any value; a cast stands only where a truth value is needed."""
    operands = values.map(_uncast)
    return st.one_of(
        st.builds(Compare, _EQUALITIES, operands, operands).filter(_is_comparable),
        st.builds(IsNull, operands, st.booleans()),
        *(_text_tests(each, operands) for each in TEXT_OPERATORS.values() if each.takes_any),
    )


def _uncast(node: Expression) -> Expression:
    return node.operand if isinstance(node, BooleanCast) else node


def _is_comparable(node: Compare) -> bool:
    if _NULL in (node.left, node.right):
        return False
    truth_first = isinstance(node.left, Literal) and node.left.kind is Kind.BOOLEAN
    return not (truth_first and isinstance(node.right, Literal) and not is_boolean(node.right))


def _flat(node_type: type[And | Or], operands: list[Expression]) -> tuple[Expression, ...]:
    parts: list[Expression] = []
    for operand in operands:
        parts.extend(operand.operands if isinstance(operand, node_type) else (operand,))
    return tuple(parts)
