"""The reasons in errors about expressions that do not parse: a constant or a function per mistake.

Most mistakes are habits from other SQL dialects, so a reason says what RocketMQ's dialect expects
instead.
"""

from __future__ import annotations

from .lexer import Token, TokenKind
from .nodes import Expression, Kind, Literal, Not, is_boolean
from .operators import TEXT_OPERATORS, Form, Operator
from .printer import shown

_NO_ARITHMETIC = "this dialect has no arithmetic"
_ILLEGAL = {
    "'": "a string without its closing quote",
    '"': "a string needs single quotes: 'text'",
    "!": "'unequal' is written <>",
    "*": _NO_ARITHMETIC,
    "/": _NO_ARITHMETIC,
    "%": _NO_ARITHMETIC,
    ";": "an expression has no semicolon at its end",
    ".": 'a property name has no dot, except in double quotes in the dialect "rocketray"',
}
_NAMES = "a property name is made of ASCII letters, digits, _ and $"
_EXTENDED = 'the dialect "rocketray"'
_QUOTED = f"a string needs single quotes: 'text'; double quotes are for names, in {_EXTENDED}"
_AFTER_END = {
    TokenKind.CLOSE: "a ')' without its '('",
    TokenKind.QUOTED: _QUOTED,
    TokenKind.PLUS: _NO_ARITHMETIC,
    TokenKind.MINUS: _NO_ARITHMETIC,
}
_NUMBERS = (TokenKind.INTEGER, TokenKind.FLOAT)

NO_NUMBERS_IN_LIST = f"IN compares strings: IN ('1', '2'); for numbers use {_EXTENDED}"
"""Explains ``IN (1, 2)`` in RocketMQ's dialect."""
MIXED_LIST = "this IN lists numbers, so every item must be a number"
"""Explains ``IN (1, 'x')``."""
NO_TRUTH_VALUE = "this is a value, and a condition is needed here: compare it with something"
"""Explains a number or text in the place of a condition."""
EMPTY_RANGE = "the lower bound of BETWEEN is above the upper one"
"""Explains ``BETWEEN 5 AND 1``."""
INTEGER_TOO_LARGE = f"an integer is at most {2**63 - 1}; write a decimal number such as 1e19"
"""Explains an integer over 64 bits."""


def described(kind: TokenKind) -> str:
    """Return a kind of token in words: a keyword as it is, a sign in quotes."""
    return kind.value if kind.value[0].isalpha() else repr(kind.value)


def without_property(keyword: str, node: Expression) -> str:
    """Explain an operand that is not a property on the left of IN or LIKE."""
    if isinstance(node, Not):
        return f"NOT binds tighter than {keyword}; write: property NOT {keyword} …"
    return f"only a property is allowed before {keyword}"


def expected(what: str, sql: str, token: Token, following: Token) -> str:
    """Explain a *token* in the place of *what*, with *following* behind it."""
    if token.kind is TokenKind.ILLEGAL:
        return _illegal(token)
    if token.kind is TokenKind.QUOTED:
        return _QUOTED
    if word := _extension(token, following):
        return _no_extension(word)
    if token.text == "=" and sql.endswith("=", 0, token.start):
        return "'equal' is written with one ="
    if token.kind is TokenKind.END:
        return f"expected {what} before the end of the expression"
    return f"expected {what}, not {shown(token.text)}"


def after_end(sql: str, previous: Token, token: Token, following: Token) -> str:
    """Explain *token* and *following* after a complete expression that ends with *previous*."""
    if token.kind is TokenKind.ILLEGAL:
        return _illegal(token)
    if sql.startswith("--", token.start):
        return "a comment that starts with -- ends with its line, and this line has no end"
    if token.kind in _AFTER_END:
        return _AFTER_END[token.kind]
    if previous.kind in _NUMBERS and previous.end == token.start:
        return "a number has no leading zeros, no hexadecimal form and no suffix but L"
    if word := _extension(token, following):
        return _no_extension(word)
    return "the expression is complete before this; join conditions with AND or OR"


def too_long(length: int, limit: int) -> str:
    """Explain more characters than *limit*."""
    return f"the expression has {length} characters; at most {limit} are allowed"


def too_deep(limit: int) -> str:
    """Explain more levels than *limit*."""
    return (
        f"nested too deep: at most {limit} levels of brackets, prefixes and operators are allowed"
    )


def too_many(limit: int) -> str:
    """Explain more nodes and list items than *limit*."""
    return f"too large: at most {limit} operators, values and list items are allowed"


def equal_to_null(operator: Operator) -> str:
    """Explain ``= NULL`` or ``<> NULL``."""
    return f"{operator.sign} cannot compare with NULL; write IS NULL or IS NOT NULL"


def boolean_with_other(kind: Kind) -> str:
    """Explain ``TRUE = 5``."""
    return f"a boolean cannot be compared with a {kind.value}"


def double_out_of_range(*, is_zero: bool) -> str:
    """Explain ``0.0`` or ``1e999``."""
    if is_zero:
        return "this dialect does not allow a decimal zero; write 0"
    return "a decimal number is at most 1.7976931348623157e308"


def not_ordered(node: Expression, operator: Operator) -> str | None:
    """Return why *operator*, which orders numbers, does not take *node*; None when it does."""
    if isinstance(node, Not):
        return f"NOT binds tighter than {operator.sign}; write: NOT (a {operator.sign} b)"
    if isinstance(node, Literal) and not node.kind.is_number:
        return f"{operator.sign} orders numbers, and this is a {node.kind.value}"
    if is_boolean(node):
        return f"{operator.sign} orders numbers, and this is a condition"
    return None


def _illegal(token: Token) -> str:
    if token.text.startswith("/*"):
        return "a comment without its */"
    return _ILLEGAL.get(token.text[0], f"'{shown(token.text)}' is not allowed here: {_NAMES}")


def _extension(token: Token, following: Token) -> str | None:
    """Return the word if the tokens are an extension, with or without NOT."""
    operator = (following if token.kind is TokenKind.NOT else token).text_operator
    return operator.word if operator is not None and operator.is_extension else None


def _no_extension(word: str) -> str:
    known = [each for each in TEXT_OPERATORS.values() if not each.is_extension]
    *parts, last = [each.word for each in known if each.form is Form.TEXT]
    return f"this dialect has no {word}; use {', '.join(parts)} or {last}, or {_EXTENDED}"
